"""`voxgate keys`: makes API keys. It prints an entry for the key file, which holds the key's hash only."""

from __future__ import annotations

import argparse
import getpass
import sys

from voxgate.gateway.access.keys import ApiKey, KeyRing, KeysError, hash_key, new_key

from .failure import fail

EPILOG = """examples:
  voxgate keys new alice >> keys.toml       make a key; it is shown once, on the terminal
  voxgate keys hash alice >> keys.toml      add an existing key, which is read without echo
  voxgate serve --keys-file keys.toml       require a key of every client; SIGHUP reloads the file"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("action", choices=["new", "hash"], help="make a key, or hash an existing one")
    parser.add_argument("name", help="name of the key's owner: letters, digits, _, - and .")


def run(parsed: argparse.Namespace) -> int:
    key = new_key() if parsed.action == "new" else _read_key()
    if not key:
        return fail("keys", "the key must not be empty")
    try:
        KeyRing([ApiKey(parsed.name, hash_key(key))])
    except KeysError as error:
        return fail("keys", str(error), status=2)
    if parsed.action == "new":
        print(f"key of {parsed.name}, shown only now: {key}", file=sys.stderr)
    print(f'[keys."{parsed.name}"]\nhash = "{hash_key(key)}"')
    return 0


def _read_key() -> str:
    return (getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
