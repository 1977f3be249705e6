"""The folder of pronunciation dictionaries: one JSON file for each, with its newest versions."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import BadMessage, DictionaryExists, TooManyDictionaries, UnknownDictionary
from .lexicon import MAX_RULES, LexiconRule

FORMAT = "voxgate-pronunciations-2"
MAX_DICTIONARIES = 200
MAX_DICTIONARIES_PER_OWNER = 50
MAX_TERMS_CHARACTERS = 16_000
"""Most characters of all terms of a dictionary: it is compiled at its first use, which takes so long."""
MAX_VERSIONS = 10
"""Newest versions of a dictionary that are kept."""
MAX_VERSIONS_BYTES = 1 << 20
"""Bytes of rules that are kept besides those of the newest version; a version of the longest rules has 900,000."""
MAX_FILE_BYTES = 4 << 20
"""More than the largest dictionary takes."""
MAX_HEAD_BYTES = 1 << 16
"""More than the first line of a file takes."""
DEFAULT_NAME = "default"
"""Name of the dictionary that applies to all utterances of its owner."""
_SUFFIX = ".json"
_ID = re.compile(r"[a-z0-9_]{1,40}")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """What a list says about a version of a dictionary."""

    id: str
    created_s: int
    """Unix time."""
    count: int
    """Number of its rules."""


@dataclass(frozen=True, slots=True)
class DictionaryVersion(VersionEntry):
    """The rules of a dictionary at one time."""

    rows: bytes
    """The rules as JSON, an array of the fields of each: most versions are read and not used."""

    def parse(self) -> Iterator[LexiconRule]:
        """Yields the rules. Raises UnknownDictionary where the file is damaged."""
        try:
            for row in json.loads(self.rows):
                yield LexiconRule(*row)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            log.warning("a version of a pronunciation dictionary cannot be used: %s", error)
            raise UnknownDictionary(f"version {self.id} of the dictionary is damaged", param="version_id") from None

    @property
    def rules(self) -> tuple[LexiconRule, ...]:
        """All of `parse`, which takes a few milliseconds."""
        return tuple(self.parse())


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """What a list says about a dictionary. `owner`: name of an API key, empty for every client."""

    id: str
    name: str
    owner: str
    created_s: int
    versions: tuple[VersionEntry, ...]
    """The newest ones, the newest last."""
    description: str = ""
    archived_s: int | None = None
    pinned: bool = False

    @property
    def latest(self) -> VersionEntry:
        return self.versions[-1]

    def usable_by(self, key: str | None) -> bool:
        """Whether the client with that API key, None where keys are not configured, may use and change it."""
        return key is None or self.owner in ("", key)


@dataclass(frozen=True, slots=True)
class Dictionary(DictionaryEntry):
    """A dictionary with the rules of its newest versions."""

    versions: tuple[DictionaryVersion, ...]

    @property
    def latest(self) -> DictionaryVersion:
        return self.versions[-1]

    def version(self, version_id: str | None) -> DictionaryVersion:
        """The version with that id, the newest for None. Raises UnknownDictionary."""
        if version_id is None:
            return self.latest
        for version in self.versions:
            if version.id == version_id:
                return version
        raise UnknownDictionary(f"dictionary {self.id} has no version {version_id[:64]!r}", param="version_id")

    def with_rules(self, rules: Iterable[LexiconRule]) -> Dictionary:
        """The dictionary with a new version. Raises BadMessage for too many rules."""
        kept = self.versions[max(0, len(self.versions) - MAX_VERSIONS + 1) :]
        while sum(len(version.rows) for version in kept) > MAX_VERSIONS_BYTES:
            kept = kept[1:]
        return replace(self, versions=(*kept, _new_version(rules)))


@lru_cache(maxsize=1024)
def default_id(owner: str) -> str:
    """The id of the default dictionary of an owner, so that it is found without a search."""
    return "pd_" + hashlib.sha256(f"{DEFAULT_NAME} {owner}".encode()).hexdigest()[:20]


class DictionaryStore:
    """The folder of dictionaries; processes may change it at the same time. All methods read or write files.

    They raise OSError when the file system fails, besides the errors that they name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def change_mark(self, id: str) -> tuple[int, int] | None:
        """A value that changes with the dictionary's file; None without one that can be found. Takes microseconds."""
        try:
            # Every utterance asks for a default dictionary, and making a path takes longer than looking for it.
            stat = os.stat(f"{self.folder}/{_file_name(id)}")  # noqa: PTH116
        except (OSError, UnknownDictionary):
            return None
        return stat.st_ino, stat.st_mtime_ns

    def load(self, id: str, key: str | None) -> Dictionary:
        """Reads a dictionary that the client with `key` may use. Raises UnknownDictionary."""
        try:
            dictionary = _parse(self._path(id).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            dictionary = None
        except OSError as error:
            log.warning("pronunciation dictionary %s cannot be read: %s", id, error)
            dictionary = None
        if dictionary is None or not dictionary.usable_by(key):
            raise UnknownDictionary(f"there is no pronunciation dictionary {id!r}", param="dictionaries")
        return dictionary

    def entries(self, key: str | None) -> list[DictionaryEntry]:
        """Reads what the client with `key` may list, the newest first, without any rules; omits damaged files."""
        return sorted(
            (each for each in self._entries() if each.usable_by(key)),
            key=lambda each: (each.created_s, each.id),
            reverse=True,
        )

    def create(self, name: str, owner: str, rules: Iterable[LexiconRule], description: str = "") -> Dictionary:
        """Stores a new dictionary. Raises BadMessage, DictionaryExists, TooManyDictionaries."""
        default = name.lower() == DEFAULT_NAME
        id = default_id(owner) if default else f"pd_{secrets.token_hex(10)}"
        version = _new_version(rules)
        dictionary = Dictionary(id, name, owner, version.created_s, (version,), description)
        with self._locked():
            stored = list(self._entries())
            if any(each.id == id for each in stored):
                raise DictionaryExists(f"there is a dictionary named {DEFAULT_NAME!r} already: change it", param="name")
            owned = sum(each.owner == owner for each in stored)
            if len(stored) >= MAX_DICTIONARIES or owned >= MAX_DICTIONARIES_PER_OWNER:
                limits = f"{MAX_DICTIONARIES_PER_OWNER} dictionaries of a key and {MAX_DICTIONARIES} in all"
                raise TooManyDictionaries(f"at most {limits} can be stored; remove one first")
            self._write(dictionary)
        return dictionary

    def change(self, id: str, key: str | None, edit: Callable[[Dictionary], Dictionary]) -> Dictionary:
        """Replaces a dictionary by what `edit` makes of it. Raises UnknownDictionary, and what `edit` raises."""
        with self._locked():
            changed = edit(self.load(id, key))
            self._write(changed)
        return changed

    def remove(self, id: str, key: str | None) -> None:
        """Deletes a dictionary. Raises UnknownDictionary."""
        with self._locked():
            self.load(id, key)
            self._path(id).unlink()

    def _entries(self) -> Iterator[DictionaryEntry]:
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                with path.open("rb") as file:
                    head = file.readline(MAX_HEAD_BYTES)
            except FileNotFoundError:
                continue  # removed since it was listed
            if (entry := _parse_head(head)) is not None:
                yield entry

    def _path(self, id: str) -> Path:
        return self.folder / _file_name(id)

    def _write(self, dictionary: Dictionary) -> None:
        handle, draft = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_serialize(dictionary))
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(self._path(dictionary.id))
        finally:
            Path(draft).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes from changing the folder during the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _file_name(id: str) -> str:
    """Returns the name of a dictionary's file in the folder. Raises UnknownDictionary for what no id can be."""
    if not _ID.fullmatch(id):
        raise UnknownDictionary(f"there is no pronunciation dictionary {id[:64]!r}", param="dictionaries")
    return f"{id}{_SUFFIX}"


def _new_version(rules: Iterable[LexiconRule]) -> DictionaryVersion:
    kept = tuple(rules)
    if len(kept) > MAX_RULES:
        raise BadMessage(
            f"a pronunciation dictionary must have at most {MAX_RULES} rules, got {len(kept)}", param="rules"
        )
    if (characters := sum(len(rule.term) for rule in kept)) > MAX_TERMS_CHARACTERS:
        raise BadMessage(
            f"the terms of a dictionary must have at most {MAX_TERMS_CHARACTERS} characters in all, got {characters}",
            param="rules",
        )
    rows = [(rule.term, rule.spoken, rule.case_sensitive, rule.word_boundaries) for rule in kept]
    encoded = json.dumps(rows, ensure_ascii=False).encode()
    return DictionaryVersion(secrets.token_hex(10), int(time.time()), len(kept), encoded)


def _serialize(dictionary: Dictionary) -> bytes:
    """A line of JSON about the dictionary, and a line with the rules of each version."""
    versions = [
        {"id": version.id, "created": version.created_s, "rules": version.count} for version in dictionary.versions
    ]
    document = {
        "format": FORMAT,
        "id": dictionary.id,
        "name": dictionary.name,
        "owner": dictionary.owner,
        "created": dictionary.created_s,
        "description": dictionary.description,
        "archived": dictionary.archived_s,
        "pinned": dictionary.pinned,
        "versions": versions,
    }
    return b"\n".join([json.dumps(document).encode(), *(version.rows for version in dictionary.versions)])


def _parse(file: bytes) -> Dictionary | None:
    """The dictionary in a file; None, with a warning, for a damaged one."""
    head, *rows = file.split(b"\n")
    if (entry := _parse_head(head)) is None:
        return None
    if len(file) > MAX_FILE_BYTES or len(rows) != len(entry.versions):
        log.warning("pronunciation dictionary %s is damaged: %d bytes, %d versions", entry.id, len(file), len(rows))
        return None
    versions = (
        DictionaryVersion(each.id, each.created_s, each.count, line)
        for each, line in zip(entry.versions, rows, strict=True)
    )
    return Dictionary(
        entry.id,
        entry.name,
        entry.owner,
        entry.created_s,
        tuple(versions),
        entry.description,
        entry.archived_s,
        entry.pinned,
    )


def _parse_head(line: bytes) -> DictionaryEntry | None:
    """The entry in the first line of a file; None, with a warning, for a damaged one."""
    try:
        document: dict[str, Any] = json.loads(line)
        if document["format"] != FORMAT or not document["versions"]:
            raise ValueError(f"not of the format {FORMAT}")
        return DictionaryEntry(
            document["id"],
            document["name"],
            document["owner"],
            document["created"],
            tuple(VersionEntry(each["id"], each["created"], each["rules"]) for each in document["versions"]),
            document["description"],
            document["archived"],
            document["pinned"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("a pronunciation dictionary cannot be read: %s", error)
        return None
