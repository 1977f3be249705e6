"""API keys: named, with limits, stored as hashes only.

A key has 256 random bits, so its plain SHA-256 cannot be inverted by guessing. A slow password hash would only let
clients keep the gateway busy.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from .rights import DEFAULT_RIGHTS, Right, parse_rights

KEY_PREFIX = "vg_"
MAX_KEY_CHARACTERS = 512
_HASH_PREFIX = "sha256:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class KeysError(ValueError):
    """A key file or entry cannot be used. The message names it and never quotes a key."""


class KeyLimits(BaseModel):
    """Limits of one key; None means that the default applies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sockets: Annotated[int, Field(ge=1)] | None = None
    utterances: Annotated[int, Field(ge=1)] | None = None
    characters_per_minute: Annotated[int, Field(ge=1)] | None = None

    def over(self, defaults: KeyLimits) -> KeyLimits:
        """These limits, completed by `defaults`."""
        return KeyLimits(**(defaults.model_dump(exclude_none=True) | self.model_dump(exclude_none=True)))


class _Entry(KeyLimits):
    """One `[keys.NAME]` table of the file."""

    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    rights: Annotated[frozenset[Right], Field(min_length=1)] = DEFAULT_RIGHTS
    expires: AwareDatetime | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: Mapping[str, _Entry] = {}


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A configured key. `hash` is "sha256:" and 64 hexadecimal digits."""

    name: str
    hash: str
    limits: KeyLimits = field(default_factory=KeyLimits)
    expires: datetime | None = None
    rights: frozenset[Right] = DEFAULT_RIGHTS

    def expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now

    @property
    def fingerprint(self) -> str:
        """The first 8 bytes of the hash in hexadecimal; tokens carry it, so that they end with the key."""
        return self.hash.removeprefix(_HASH_PREFIX)[:16]


class KeyRing:
    """The configured keys. Raises KeysError for an invalid name, a duplicate name or a duplicate hash."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self._by_hash: dict[str, ApiKey] = {}
        self._by_name: dict[str, ApiKey] = {}
        for key in keys:
            if not _NAME.fullmatch(key.name):
                rule = "at most 64 letters, digits, _, - and ., the first a letter or digit"
                raise KeysError(f"key name {key.name!r} must consist of {rule}")
            if key.name in self._by_name or key.hash in self._by_hash:
                raise KeysError(f"the name or hash of key {key.name!r} is configured twice")
            self._by_hash[key.hash] = self._by_name[key.name] = key

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, presented: str) -> ApiKey | None:
        """The presented key, which may have expired; None if it is unknown."""
        if len(presented) > MAX_KEY_CHARACTERS:
            return None
        # A look-up by hash takes a time that reveals nothing about the key.
        return self._by_hash.get(hash_key(presented))

    def named(self, name: str) -> ApiKey | None:
        """The key of that name, which may have expired; None if there is none."""
        return self._by_name.get(name)


def hash_key(key: str) -> str:
    """The hash under which a key is stored."""
    return _HASH_PREFIX + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def new_key() -> str:
    """A new key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def load_keys(path: Path | None, listed: Iterable[str]) -> KeyRing:
    """The keys of a TOML file and of "NAME=sha256:HEX" or "NAME=sha256:HEX:RIGHT+RIGHT" entries. Raises KeysError."""
    keys = [] if path is None else _from_file(path)
    return KeyRing([*keys, *(_from_entry(number, entry) for number, entry in enumerate(listed, 1))])


def _from_file(path: Path) -> list[ApiKey]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as missing:
        raise KeysError(f"cannot read {path}: {missing.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        # The parser's message may quote the line, which may hold a key; only the position is reported.
        place = re.search(r"\(at (line \d+), column \d+\)$", str(broken))
        raise KeysError(
            f"{path} is not valid TOML, or names a key twice" + (f": {place[1]}" if place else "")
        ) from None
    try:
        entries = _File.model_validate(document).keys
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise KeysError(f"{where} in {path}: {first['msg']}") from None
    return [
        ApiKey(
            name,
            entry.hash,
            KeyLimits(**entry.model_dump(exclude={"hash", "rights", "expires"})),
            entry.expires,
            entry.rights,
        )
        for name, entry in entries.items()
    ]


_ENTRY = re.compile(r"([^=]*)=(sha256:[0-9a-f]{64})(?::(.*))?")


def _from_entry(number: int, entry: str) -> ApiKey:
    if not (found := _ENTRY.fullmatch(entry)):
        # The entry is not quoted: it may hold a key in clear.
        raise KeysError(f"entry {number}: expected NAME=sha256:HEX, as `voxgate keys new NAME` prints it")
    name, hashed, rights = found.groups()
    try:
        return ApiKey(name, hashed, rights=DEFAULT_RIGHTS if rights is None else parse_rights(rights))
    except ValueError as unknown:
        raise KeysError(f"entry {number}: {unknown}") from None


def utc_now() -> datetime:
    return datetime.now(UTC)
