"""`voxgate keys`: makes API keys. It prints an entry for the key file, which holds the key's hash only."""

from __future__ import annotations

import argparse
import getpass
import sys

from voxgate.gateway.access.keys import ApiKey, KeyRing, hash_key, new_key
from voxgate.gateway.access.rights import DEFAULT_RIGHTS, Right, parse_rights

from .failure import fail

EPILOG = """examples:
  voxgate keys new alice >> keys.toml       make a key; it is shown once, on the terminal
  voxgate keys new prometheus --rights metrics >> keys.toml
  voxgate keys hash alice >> keys.toml      add an existing key, which is read without echo
  voxgate serve --keys-file keys.toml       require a key of every client; SIGHUP reloads the file"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("action", choices=["new", "hash"], help="make a key, or hash an existing one")
    parser.add_argument(
        "--rights",
        default="+".join(DEFAULT_RIGHTS),
        metavar="RIGHT+RIGHT",
        help=f"what the key may do: {', '.join(Right)} (default: %(default)s)",
    )
    parser.add_argument("name", help="name of the key's owner: letters, digits, _, - and .")


def run(parsed: argparse.Namespace) -> int:
    key = new_key() if parsed.action == "new" else _read_key()
    if not key:
        return fail("keys", "the key must not be empty")
    try:
        KeyRing([ApiKey(parsed.name, hash_key(key))])
        rights = parse_rights(parsed.rights)
    except ValueError as error:
        return fail("keys", str(error), status=2)
    if parsed.action == "new":
        print(f"key of {parsed.name}, shown only now: {key}", file=sys.stderr)
    listed = ", ".join(f'"{right}"' for right in Right if right in rights)
    print(f'[keys."{parsed.name}"]\nhash = "{hash_key(key)}"\nrights = [{listed}]')
    return 0


def _read_key() -> str:
    return (getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
