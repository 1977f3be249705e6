"""Which lexica apply to an utterance."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from voxgate.gateway.messages.client import Start
from voxgate.gateway.session.lookup import pronunciations as module
from voxgate.gateway.session.lookup.pronunciations import Pronunciations, load_rules
from voxgate.gateway.settings import Settings, SettingsError
from voxgate.pipeline.errors import AtCapacity, BadMessage, UnknownDictionary
from voxgate.pipeline.text.lexicon.filter import make_text_filter
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule
from voxgate.pipeline.text.lexicon.store import DictionaryStore


def start(**fields: Any) -> Start:
    return Start(type="start", utterance="u", **fields)


async def lexica(source: Pronunciations, message: Start, key: str | None = None) -> tuple[Lexicon, ...]:
    dictionaries = source.dictionaries(message, key)
    if dictionaries is None:
        dictionaries = await source.load_dictionaries(message, key, "caller")
        assert source.dictionaries(message, key) in (dictionaries, None)  # None for a damaged default one
    return source.with_rules(message, dictionaries)


async def spoken(source: Pronunciations, text: str, key: str | None = None, **fields: Any) -> str:
    text_filter = make_text_filter((), await lexica(source, start(**fields), key))
    return "".join(str(piece) for piece in [*text_filter.push(text), *text_filter.flush()])


async def test_request_comes_before_dictionaries_before_the_key_before_the_gateway(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    words = [LexiconRule(word, "gateway") for word in ("a1", "a2", "a3", "a4")]
    source = Pronunciations(store, words)
    store.create("default", "ada", [LexiconRule(word, "key") for word in ("a1", "a2", "a3")])
    named = store.create("tech", "ada", [LexiconRule(word, "named") for word in ("a1", "a2")])
    own = ({"term": "a1", "spoken": "request"},)
    assert await spoken(source, "a1 a2 a3 a4", "ada", pronunciations=own, dictionaries=(named.id,)) == (
        "request named key gateway"
    )
    assert await spoken(source, "a1", "bob") == "gateway"
    assert await spoken(Pronunciations(store), "a1", "bob") == "a1"
    assert await lexica(Pronunciations(store), start(), "bob") == ()


@pytest.mark.parametrize("term", ["\x1c", "a\x00"])
async def test_terms_of_control_characters_are_refused(term: str) -> None:
    with pytest.raises(BadMessage, match="term of a pronunciation"):
        await lexica(Pronunciations(), start(pronunciations=({"term": term, "spoken": "x"},)), None)


async def test_a_version_can_be_named_and_changes_take_effect(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    source = Pronunciations(store)
    first = store.create("tech", "", [LexiconRule("SQL", "one")])
    assert await spoken(source, "SQL", dictionaries=(first.id,)) == "one"
    store.change(first.id, None, lambda each: each.with_rules([LexiconRule("SQL", "two")]))
    assert await spoken(source, "SQL", dictionaries=(first.id,)) == "two"
    assert await spoken(source, "SQL", dictionaries=(f"{first.id}:{first.latest.id}",)) == "one"
    store.remove(first.id, None)
    with pytest.raises(UnknownDictionary):
        await lexica(source, start(dictionaries=(first.id,)), None)


async def test_dictionaries_of_other_keys_are_unknown_also_when_they_are_compiled(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    source = Pronunciations(store)
    made = store.create("tech", "ada", [LexiconRule("SQL", "one")])
    assert await spoken(source, "SQL", "ada", dictionaries=(made.id,)) == "one"
    for id in (made.id, "pd_none", "../x"):
        with pytest.raises(UnknownDictionary):
            await lexica(source, start(dictionaries=(id,)), "bob")


async def test_compiled_dictionaries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 2)
    store = DictionaryStore(tmp_path)
    source = Pronunciations(store)
    for n in range(4):
        made = store.create("d", "", [LexiconRule("SQL", str(n))])
        assert await spoken(source, "SQL", dictionaries=(made.id,)) == str(n)
    assert len(source._compiled) == 2


async def test_compiled_dictionaries_are_found_at_once(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    source = Pronunciations(store)
    made = store.create("d", "", [LexiconRule("SQL", "one")])
    message = start(dictionaries=(made.id,))
    assert source.dictionaries(message, None) is None
    loaded = await source.load_dictionaries(message, None, "caller")
    assert source.dictionaries(message, None) == loaded
    assert source.dictionaries(message, "bob") == loaded


async def test_a_caller_does_not_keep_the_thread_from_others(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    source = Pronunciations(store)
    ids = [store.create("d", "", [LexiconRule("SQL", str(n))]).id for n in range(9)]
    order: list[str] = []

    async def load(caller: str, id: str) -> None:
        await source.load_dictionaries(start(dictionaries=(id,)), None, caller)
        order.append(caller)

    await asyncio.gather(*(load("many", id) for id in ids[:8]), load("one", ids[8]))
    assert order.index("one") <= 2


async def test_waiting_for_the_thread_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_TIMEOUT_S", 0.01)
    store = DictionaryStore(tmp_path)
    source = Pronunciations(store)
    made = store.create("d", "", [LexiconRule("SQL", "one")])
    released = threading.Event()
    source._thread.submit(released.wait)
    try:
        with pytest.raises(AtCapacity):
            await source.load_dictionaries(start(dictionaries=(made.id,)), None, "caller")
    finally:
        released.set()


async def test_a_damaged_default_dictionary_stops_no_speech(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    made = store.create("default", "", [LexiconRule("SQL", "one")])
    (tmp_path / f"{made.id}.json").write_text("{")
    assert await spoken(Pronunciations(store), "SQL") == "SQL"


async def test_rules_of_the_gateway_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.toml"
    path.write_text('SQL = "sequel"\n"New York" = {spoken = "the big apple", case_sensitive = true}\n')
    assert load_rules(path) == [LexiconRule("SQL", "sequel"), LexiconRule("New York", "the big apple", True)]
    source = Pronunciations.from_settings(Settings(pronunciations=path, voices_dir=tmp_path))
    assert await spoken(source, "sql in new york, New York") == "sequel in new york, the big apple"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("SQL", "not valid TOML"),
        ("SQL = 5", "term 'SQL'"),
        ('SQL = {ipa = "x"}', "'ipa'"),
        ("SQL = {case_sensitive = true}", "spoken"),
        ('SQL = ""', "blank"),
    ],
)
async def test_other_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "words.toml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=words):
        load_rules(path)
    with pytest.raises(SettingsError, match="cannot read"):
        load_rules(tmp_path / "missing.toml")
