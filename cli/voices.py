"""`voxgate voices`: lists a running gateway's voices; with an action, manages the voices stored on this machine."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from voxgate.client.address import ServerAddress

from .connection import (
    add_gateway_flags,
    gateway_refusal_message,
    gateway_unreachable_message,
    key_header,
    tls_context,
)
from .failure import fail, install_advice

TIMEOUT_S = 10

EPILOG = """examples:
  voxgate voices                                    list the voices of a running gateway
  voxgate voices add ada --audio ada.wav --checkpoint Qwen/Qwen3-TTS-12Hz-0.6B-Base
  voxgate voices add ada --audio ada.wav --text "The recording's text." --checkpoint ...
  voxgate voices blend both ada bob --weight 0.3    seven tenths ada, three tenths bob
  voxgate voices list                               list the voices stored on this machine
  voxgate voices remove ada

A running gateway that serves the checkpoint offers a new voice within a second. Clone only voices of people who have
agreed to it."""

EPILOG_WITHOUT_SERVER = f"""examples:
  voxgate voices                                    list the voices of a running gateway

Adding, blending and removing voices needs more libraries: {install_advice("cpu")}."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_gateway_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the gateway's answer as JSON")
    try:
        from . import stored_voices

        parser.epilog = EPILOG
        stored_voices.configure(parser.add_subparsers(dest="action", metavar="ACTION"))
    except ModuleNotFoundError:
        # Listing a gateway's voices needs none of the server's libraries. `run` reports which one an action lacks.
        parser.epilog = EPILOG_WITHOUT_SERVER
        actions = parser.add_subparsers(dest="action", metavar="", help=argparse.SUPPRESS)
        for action in ("add", "blend", "list", "remove"):
            actions.add_parser(action, add_help=False).add_argument("options", nargs=argparse.REMAINDER)


def run(parsed: argparse.Namespace) -> int:
    if parsed.action is None:
        return _list_remote(parsed)
    from . import stored_voices

    return stored_voices.run(parsed)


class VoicesUnavailable(Exception):
    """The voices of a gateway could not be listed; the message says why."""


def fetch_voices(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the gateway's answer to `GET /v1/voices`. Raises VoicesUnavailable."""
    try:
        url = ServerAddress.parse(parsed.url).http_url("/v1/voices")
        request = urllib.request.Request(url, headers=key_header(parsed))
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls_context(parsed)) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as refusal:
        raise VoicesUnavailable(gateway_refusal_message(refusal.code, _reason(refusal))) from None
    except urllib.error.URLError as error:
        raise VoicesUnavailable(gateway_unreachable_message(parsed.url, error.reason)) from None
    except (OSError, ValueError, HTTPException) as error:
        raise VoicesUnavailable(f"cannot list the voices at {parsed.url}: {error}") from None


def _list_remote(parsed: argparse.Namespace) -> int:
    try:
        answer = fetch_voices(parsed)
    except VoicesUnavailable as error:
        return fail("voices", str(error))
    if parsed.json:
        print(json.dumps(answer, indent=2))
        return 0
    if not answer["voices"]:
        print("the gateway has no voices; make one with 'voxgate voices add'")
        return 0
    width = max(len(voice["name"]) for voice in answer["voices"])
    for voice in answer["voices"]:
        mark = "*" if voice["name"] == answer["default"] else " "
        notes = [voice["description"], ", ".join(voice["languages"])]
        if voice["instructions"]:
            notes.append("takes instructions")
        print(f"{mark} {voice['name']:<{width}}  " + "; ".join(note for note in notes if note))
    print("\n* default voice")
    return 0


def _reason(refusal: urllib.error.HTTPError) -> str:
    """The message in the gateway's answer, if there is one; else the HTTP status."""
    try:
        return str(json.load(refusal)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{refusal.code} {refusal.reason}"
