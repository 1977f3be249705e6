"""`voxgate keys`: makes API keys; the gateway stores only what it prints for the key file."""

from __future__ import annotations

import argparse
import getpass
import sys

from voxgate.gateway.access.keys import ApiKey, KeyRing, KeysError, hash_key, new_key

EPILOG = """examples:
  voxgate keys new alice >> keys.toml       the key itself is shown once, on the terminal
  voxgate keys hash alice >> keys.toml      for a key that exists; it is asked for
  voxgate serve --keys-file keys.toml       now everyone needs a key; SIGHUP reads the file again"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("action", choices=["new", "hash"], help="make a key, or hash one that is asked for")
    parser.add_argument("name", help="whose key it is: letters, digits, _, - and .")


def run(parsed: argparse.Namespace) -> int:
    key = new_key() if parsed.action == "new" else _asked()
    if not key:
        print("voxgate keys: no key was given", file=sys.stderr)
        return 1
    try:
        KeyRing([ApiKey(parsed.name, hash_key(key))])
    except KeysError as error:
        print(f"voxgate keys: {error}", file=sys.stderr)
        return 2
    if parsed.action == "new":
        print(f"key of {parsed.name}, shown only now: {key}", file=sys.stderr)
    print(f'[keys."{parsed.name}"]\nhash = "{hash_key(key)}"')
    return 0


def _asked() -> str:
    return (getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
