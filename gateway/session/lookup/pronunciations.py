"""Which lexica apply to an utterance: those of its request, of its API key, and of the gateway."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from voxgate.pipeline.errors import AtCapacity, BadMessage, UnknownDictionary
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule
from voxgate.pipeline.text.lexicon.store import DictionaryStore, default_id

from ...messages.client import Start
from ...settings import Settings, SettingsError

LOAD_TIMEOUT_S = 10.0
"""Longest wait for dictionaries that have to be compiled."""
DICTIONARIES_RETRY_MS = 1000
FOLDER = "pronunciations"
"""Folder of the dictionaries, within that of the cloned voices."""
MAX_CACHED = 32
"""Most dictionaries that are kept compiled; the largest takes about 4 MB."""
MAX_GATEWAY_RULES = 10_000
_RULES_AT_ONCE = 32
_PAUSE_S = 1e-4


class _Reference(NamedTuple):
    """A dictionary that the client with `key` names, or its default one; the newest version for None."""

    id: str
    version: str | None
    key: str | None
    default: bool = False


class Pronunciations:
    """Finds the lexica of utterances. Dictionaries are compiled when they are first used, and again when changed.

    Compiling one takes up to 10 ms, so it happens in a thread, one dictionary at a time; callers take turns.
    """

    def __init__(self, store: DictionaryStore | None = None, everywhere: Iterable[LexiconRule] = ()) -> None:
        """`everywhere`: rules of the gateway, which apply to every utterance."""
        self.store = store
        lexicon = Lexicon(everywhere)
        self._everywhere = (lexicon,) if lexicon else ()
        self._compiled: OrderedDict[tuple[str, str | None], tuple[object, str, Lexicon]] = OrderedDict()
        """Change mark, owner and lexicon of dictionaries by id and version, the one used last at the end."""
        self._thread = ThreadPoolExecutor(1, "pronunciations")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held by the one job of a caller that waits for the thread."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Pronunciations:
        """Raises SettingsError when the file of pronunciations cannot be used."""
        store = DictionaryStore(settings.voices_dir.expanduser() / FOLDER)
        return cls(store, () if settings.pronunciations is None else load_rules(settings.pronunciations))

    def dictionaries(self, start: Start, key: str | None) -> tuple[Lexicon, ...] | None:
        """The dictionaries of an utterance of the client with `key`, first those that it names, then its default one.

        None when one of them has to be compiled: then call `load_dictionaries`.
        """
        found = [self._find_compiled(which) for which in self._dictionaries(start, key)]
        lexica = tuple(lexicon for lexicon in found if lexicon is not None)
        return lexica if len(lexica) == len(found) else None

    async def load_dictionaries(self, start: Start, key: str | None, caller: str) -> tuple[Lexicon, ...]:
        """As `dictionaries`, but compiles them. Jobs of one `caller` wait for each other; cancelling one is safe.

        Raises UnknownDictionary; AtCapacity after LOAD_TIMEOUT_S.
        """
        turn = self._turns.setdefault(caller, asyncio.Lock())
        lexica: list[Lexicon] = []
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                for which in self._dictionaries(start, key):
                    async with turn:
                        try:
                            lexica.append(self._find_compiled(which) or await self._compile(which))
                        except UnknownDictionary:
                            if not which.default:
                                raise
        except TimeoutError:
            message = f"the dictionaries could not be loaded within {LOAD_TIMEOUT_S:g} s"
            raise AtCapacity(message, retry_after_ms=DICTIONARIES_RETRY_MS) from None
        return tuple(lexica)

    def with_rules(self, start: Start, dictionaries: tuple[Lexicon, ...]) -> tuple[Lexicon, ...]:
        """The lexica of an utterance in the order of their priority. Raises BadMessage for its own rules."""
        own: tuple[Lexicon, ...] = ()
        if start.pronunciations:
            try:
                own = (Lexicon(LexiconRule(**each.model_dump()) for each in start.pronunciations),)
            except ValueError as error:
                raise BadMessage(str(error), param="pronunciations") from None
        return (*own, *dictionaries, *self._everywhere)

    def _dictionaries(self, start: Start, key: str | None) -> list[_Reference]:
        named = [_Reference(*_locator(name), key) for name in start.dictionaries]
        default = default_id(key or "")
        # The default dictionary of a key, or of all clients without one; it does not apply while it cannot be read.
        if self.store is not None and self.store.change_mark(default) is not None:
            named.append(_Reference(default, None, key or None, default=True))
        return named

    def _find_compiled(self, which: _Reference) -> Lexicon | None:
        cached = self._compiled.get((which.id, which.version))
        if cached is None or self.store is None or not (which.key is None or cached[1] in ("", which.key)):
            return None
        if cached[0] != self.store.change_mark(which.id):
            return None
        self._compiled.move_to_end((which.id, which.version))
        return cached[2]

    async def _compile(self, which: _Reference) -> Lexicon:
        if self.store is None:
            raise UnknownDictionary(f"there is no pronunciation dictionary {which.id!r}", param="dictionaries")
        mark = self.store.change_mark(which.id)
        loop = asyncio.get_running_loop()
        owner, lexicon = await loop.run_in_executor(self._thread, _compile, self.store, which)
        self._compiled[which.id, which.version] = mark, owner, lexicon
        self._compiled.move_to_end((which.id, which.version))
        while len(self._compiled) > MAX_CACHED:
            self._compiled.popitem(last=False)
        return lexicon


def _compile(store: DictionaryStore, which: _Reference) -> tuple[str, Lexicon]:
    """Owner and lexicon of a dictionary. Raises UnknownDictionary."""
    dictionary = store.load(which.id, which.key)
    return dictionary.owner, Lexicon(_in_pieces(dictionary.version(which.version).parse()))


def _in_pieces(rules: Iterable[LexiconRule]) -> Iterator[LexiconRule]:
    """Lets the event loop have the interpreter between rules: otherwise it waits 5 ms each time that it wants it."""
    for number, rule in enumerate(rules):
        if number % _RULES_AT_ONCE == 0:
            time.sleep(_PAUSE_S)
        yield rule


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
