"""API keys of acceptance tests."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path


def new_key() -> str:
    return "vg_" + secrets.token_urlsafe(32)


def key_hash(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def key_entry(name: str, key: str) -> str:
    """The value of `--keys` for a key."""
    return f"{name}={key_hash(key)}"


def write_keys_file(path: Path, keys: dict[str, str], **rights: list[str]) -> None:
    """Write a file for `--keys-file`; `rights` of a key by its name."""
    lines = []
    for name, key in keys.items():
        lines += [f"[keys.{name}]", f'hash = "{key_hash(key)}"']
        if name in rights:
            lines.append(f"rights = {rights[name]!r}".replace("'", '"'))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.chmod(0o600)


def bearer(key: str) -> str:
    """The header with a key."""
    return f"Authorization: Bearer {key}"
