"""`voxgate voices`: what a running gateway can speak with; and the voices kept on this machine, made of recordings."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request

from . import stored_voices as voice_store
from .connection import (
    add_gateway_flags,
    gateway_refusal_message,
    gateway_unreachable_message,
    http_url,
    key_header,
    tls_context,
)

TIMEOUT_S = 10

EPILOG = """examples:
  voxgate voices                                    what a running gateway can speak with
  voxgate voices add ada --audio ada.wav --checkpoint Qwen/Qwen3-TTS-12Hz-0.6B-Base
  voxgate voices add ada --audio ada.wav --text "What is said in it." --checkpoint ...
  voxgate voices blend both ada bob --weight 0.3    three tenths bob
  voxgate voices list                               what is kept on this machine
  voxgate voices remove ada

A gateway that serves the checkpoint offers a voice within a second. Make voices only of people who agreed to it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_gateway_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the gateway's answer as it is")
    voice_store.configure(parser.add_subparsers(dest="action", metavar="ACTION"))


def run(parsed: argparse.Namespace) -> int:
    if parsed.action is not None:
        return voice_store.run(parsed)
    address = http_url(parsed.url, "/v1/voices")
    try:
        request = urllib.request.Request(address, headers=key_header(parsed))
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls_context(parsed)) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as refused:
        return _complain(gateway_refusal_message(refused.code, _reason(refused)))
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return _complain(gateway_unreachable_message(parsed.url))
        return _complain(f"no list from {address}: {error.reason}")
    except (OSError, ValueError) as error:
        return _complain(f"no list from {address}: {error}")
    if parsed.json:
        print(json.dumps(answer, indent=2))
        return 0
    if not answer["voices"]:
        print("the gateway has no voices yet; 'voxgate voices add' makes one")
        return 0
    width = max((len(voice["name"]) for voice in answer["voices"]), default=0)
    for voice in answer["voices"]:
        mark = "*" if voice["name"] == answer["default"] else " "
        notes = [voice["description"], ", ".join(voice["languages"])]
        if voice["instructions"]:
            notes.append("takes instructions")
        print(f"{mark} {voice['name']:<{width}}  " + "; ".join(note for note in notes if note))
    print("\n* is the default")
    return 0


def _reason(refused: urllib.error.HTTPError) -> str:
    """The gateway's own words, where it has any."""
    try:
        return str(json.load(refused)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{refused.code} {refused.reason}"


def _complain(text: str) -> int:
    print(f"voxgate voices: {text}", file=sys.stderr)
    return 1
