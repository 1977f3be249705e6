"""Which lexica apply to an utterance: those of its request, of its API key, and of the gateway."""

from __future__ import annotations

import tomllib
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voxgate.pipeline.errors import BadMessage, UnknownDictionary
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule
from voxgate.pipeline.text.lexicon.store import DictionaryStore, default_id

from ...messages import Start
from ...settings import Settings, SettingsError

FOLDER = "pronunciations"
"""Folder of the dictionaries, within that of the cloned voices."""
MAX_CACHED = 32
"""Most dictionaries that are kept compiled; the largest takes about 4 MB."""
MAX_GATEWAY_RULES = 10_000


class Pronunciations:
    """Finds the lexica of utterances. Dictionaries are compiled when they are first used, and again when changed."""

    def __init__(self, store: DictionaryStore | None = None, everywhere: Iterable[LexiconRule] = ()) -> None:
        """`everywhere`: rules of the gateway, which apply to every utterance."""
        self.store = store
        lexicon = Lexicon(everywhere)
        self._everywhere = (lexicon,) if lexicon else ()
        self._compiled: OrderedDict[tuple[str, str | None], tuple[object, str, Lexicon]] = OrderedDict()
        """Change mark, owner and lexicon of dictionaries by id and version, the one used last at the end."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Pronunciations:
        """Raises SettingsError when the file of pronunciations cannot be used."""
        store = DictionaryStore(settings.voices_dir.expanduser() / FOLDER)
        return cls(store, () if settings.pronunciations is None else load_rules(settings.pronunciations))

    def lexica(self, start: Start, key: str | None) -> tuple[Lexicon, ...]:
        """The lexica of an utterance of the client with `key`, in the order of their priority.

        Raises UnknownDictionary, BadMessage.
        """
        try:
            own = (Lexicon(LexiconRule(**each.model_dump()) for each in start.pronunciations),)
        except ValueError as error:
            raise BadMessage(str(error), param="pronunciations") from None
        named = [self._dictionary(*_locator(name), key) for name in start.dictionaries]
        return (*(own if start.pronunciations else ()), *named, *self._default(key or ""), *self._everywhere)

    def _default(self, owner: str) -> tuple[Lexicon, ...]:
        """The default dictionary of a key, or of all clients without one; nothing while it cannot be read."""
        if self.store is None or self.store.change_mark(default_id(owner)) is None:
            return ()
        try:
            return (self._dictionary(default_id(owner), None, owner or None),)
        except UnknownDictionary:
            return ()

    def _dictionary(self, id: str, version: str | None, key: str | None) -> Lexicon:
        if self.store is None:
            raise UnknownDictionary(f"there is no pronunciation dictionary {id!r}", param="dictionaries")
        mark = self.store.change_mark(id)
        cached = self._compiled.get((id, version))
        if cached is not None and mark is not None and cached[0] == mark and (key is None or cached[1] in ("", key)):
            self._compiled.move_to_end((id, version))
            return cached[2]
        dictionary = self.store.load(id, key)
        lexicon = Lexicon(dictionary.version(version).rules)
        self._compiled[id, version] = mark, dictionary.owner, lexicon
        self._compiled.move_to_end((id, version))
        while len(self._compiled) > MAX_CACHED:
            self._compiled.popitem(last=False)
        return lexicon


def _locator(name: str) -> tuple[str, str | None]:
    """Id and version in "ID" or "ID:VERSION"."""
    id, _, version = name.partition(":")
    return id, version or None


def load_rules(path: Path) -> list[LexiconRule]:
    """The rules in a TOML file: `term = "spoken"`, or `term = {spoken = "…", case_sensitive = true}`.

    Raises SettingsError.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as missing:
        raise SettingsError(f"pronunciations: cannot read {path}: {missing.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise SettingsError(f"pronunciations: {path} is not valid TOML: {broken}") from None
    if len(table) > MAX_GATEWAY_RULES:
        raise SettingsError(f"pronunciations: {path} must have at most {MAX_GATEWAY_RULES} terms, got {len(table)}")
    return [_rule(path, term, value) for term, value in table.items()]


def _rule(path: Path, term: str, value: Any) -> LexiconRule:
    fields = {"spoken": value} if isinstance(value, str) else value
    try:
        options = {name: bool(fields[name]) for name in ("case_sensitive", "word_boundaries") if name in fields}
        if unknown := set(fields) - {"spoken", *options}:
            raise ValueError(f"unknown field {min(unknown)!r}")
        return LexiconRule(term, str(fields["spoken"]), **options)
    except (ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"pronunciations: term {term!r} in {path}: {error}") from None
