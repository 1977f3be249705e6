"""`voxgate voices`: what a running gateway can speak with."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from ..client.session import DEFAULT_URL

TIMEOUT_S = 10


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the gateway (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the gateway's answer as it is")


def run(parsed: argparse.Namespace) -> int:
    address = http_url(parsed.url, "/v1/voices")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            answer = json.load(response)
    except (urllib.error.URLError, OSError, ValueError) as error:
        print(f"voxgate voices: no list from {address}: {error}", file=sys.stderr)
        return 1
    if parsed.json:
        print(json.dumps(answer, indent=2))
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


def http_url(url: str, path: str) -> str:
    """The HTTP address of `path` beside a WebSocket address."""
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    return f"{'https' if parts.scheme in ('wss', 'https') else 'http'}://{parts.netloc}{path}"
