"""Dictionaries on disk: versions, owners, limits, damaged files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from voxgate.pipeline.errors import BadMessage, DictionaryExists, TooManyDictionaries, UnknownDictionary
from voxgate.pipeline.text.lexicon import store as module
from voxgate.pipeline.text.lexicon.lexicon import MAX_RULES, MAX_SPOKEN_CHARACTERS, LexiconRule
from voxgate.pipeline.text.lexicon.store import MAX_VERSIONS, DictionaryStore, default_id

RULES = (LexiconRule("SQL", "sequel"), LexiconRule("nginx", "engine x", True, False))


def test_a_dictionary_is_read_as_it_was_stored(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path / "new")
    made = store.create("tech", "ada", RULES, "words")
    assert DictionaryStore(tmp_path / "new").load(made.id, "ada") == made
    assert (made.name, made.owner, made.description, made.latest.rules) == ("tech", "ada", "words", RULES)
    assert not list((tmp_path / "new").glob("*.draft"))


def test_each_change_makes_a_version_and_the_oldest_are_dropped(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    made = store.create("tech", "", RULES)
    mark = store.change_mark(made.id)
    for n in range(MAX_VERSIONS + 2):
        changed = store.change(made.id, None, lambda each, n=n: each.with_rules([LexiconRule(f"w{n}", "x")]))
    assert len(changed.versions) == MAX_VERSIONS
    assert changed.latest.rules == (LexiconRule(f"w{MAX_VERSIONS + 1}", "x"),)
    assert changed.version(changed.versions[0].id) == changed.versions[0]
    with pytest.raises(UnknownDictionary, match="no version"):
        changed.version(made.latest.id)
    assert store.change_mark(made.id) != mark


def test_a_key_sees_its_own_dictionaries_and_those_without_an_owner(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    own, common, foreign = (store.create("d", owner, RULES) for owner in ("ada", "", "bob"))
    assert {each.id for each in store.entries("ada")} == {own.id, common.id}
    assert len(store.entries(None)) == 3
    for use in (store.load, store.remove, lambda id, key: store.change(id, key, lambda each: each)):
        with pytest.raises(UnknownDictionary):
            use(foreign.id, "ada")
    store.remove(own.id, "ada")
    assert [each.id for each in store.entries("ada")] == [common.id]


def test_an_owner_has_one_default_dictionary(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    assert store.create("Default", "ada", RULES).id == default_id("ada")
    assert store.create("default", "bob", RULES).id == default_id("bob")
    with pytest.raises(DictionaryExists):
        store.create("default", "ada", RULES)


def test_number_and_size_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DICTIONARIES_PER_OWNER", 2)
    monkeypatch.setattr(module, "MAX_DICTIONARIES", 3)
    store = DictionaryStore(tmp_path)
    for _ in range(2):
        store.create("d", "ada", RULES)
    with pytest.raises(TooManyDictionaries, match="2 dictionaries of a key"):
        store.create("d", "ada", RULES)
    store.create("d", "bob", RULES)
    with pytest.raises(TooManyDictionaries):
        store.create("d", "eve", RULES)
    with pytest.raises(BadMessage, match="at most 1000 rules, got 1001"):
        store.create("d", "bob", [LexiconRule(f"w{n}", "x") for n in range(MAX_RULES + 1)])
    with pytest.raises(BadMessage, match="16000 characters in all, got 16032"):
        store.create("d", "bob", [LexiconRule("x" * 48, "x")] * 334)


def test_the_largest_dictionary_is_read_whatever_its_characters(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    rules = [LexiconRule(f"w{n}", "\U0001f600" * MAX_SPOKEN_CHARACTERS) for n in range(MAX_RULES)]
    made = store.create("d", "ada", rules)
    for _ in range(MAX_VERSIONS):
        changed = store.change(made.id, "ada", lambda each: each.with_rules(rules))
    assert 1 < len(changed.versions) < MAX_VERSIONS
    assert store.load(made.id, "ada") == changed
    assert store.load(made.id, "ada").latest.rules == tuple(rules)
    assert (tmp_path / f"{made.id}.json").stat().st_size < module.MAX_FILE_BYTES / 2


def test_lists_read_no_rules(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    made = store.create("d", "ada", RULES)
    path = tmp_path / f"{made.id}.json"
    path.write_bytes(path.read_bytes().partition(b"\n")[0])
    [entry] = store.entries("ada")
    assert (entry.id, entry.latest.id, entry.latest.count) == (made.id, made.latest.id, len(RULES))
    with pytest.raises(UnknownDictionary):
        store.load(made.id, "ada")


def test_versions_that_are_not_used_are_not_parsed(tmp_path: Path) -> None:
    store = DictionaryStore(tmp_path)
    made = store.create("d", "ada", RULES)
    store.change(made.id, "ada", lambda each: each.with_rules(()))
    path = tmp_path / f"{made.id}.json"
    path.write_text(path.read_text().replace('["SQL"', "damaged"))
    assert store.load(made.id, "ada").latest.rules == ()
    with pytest.raises(UnknownDictionary, match="damaged"):
        _ = store.load(made.id, "ada").versions[0].rules


@pytest.mark.parametrize("id", ["", "..", "../x", "a/b", "A", "x" * 41, "pd_missing"])
def test_other_names_are_no_files(tmp_path: Path, id: str) -> None:
    store = DictionaryStore(tmp_path)
    assert store.change_mark(id) is None
    with pytest.raises(UnknownDictionary):
        store.load(id, None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "x"}', '{"format": "voxgate-pronunciations-2"}'])
def test_damaged_files_are_left_out(tmp_path: Path, content: str) -> None:
    store = DictionaryStore(tmp_path)
    good = store.create("d", "", RULES)
    (tmp_path / "pd_bad.json").write_text(content)
    assert [each.id for each in store.entries(None)] == [good.id]
    with pytest.raises(UnknownDictionary):
        store.load("pd_bad", None)


@pytest.mark.parametrize("rule", ['["", "x", false, false]', '["a"]', "5", '[5, "x", false, false]'])
def test_damaged_rules_are_no_rules(tmp_path: Path, rule: str) -> None:
    store = DictionaryStore(tmp_path)
    made = store.create("d", "", [LexiconRule("SQL", "sequel")])
    path = tmp_path / f"{made.id}.json"
    path.write_text(path.read_text().replace('["SQL", "sequel", false, true]', rule))
    with pytest.raises(UnknownDictionary):
        _ = store.load(made.id, None).latest.rules


def test_folders_that_cannot_be_read_have_no_dictionary(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    folder.symlink_to(folder)  # an OSError for every user, also for root
    store = DictionaryStore(folder)
    assert store.change_mark("pd_a") is None
    with pytest.raises(UnknownDictionary):
        store.load("pd_a", None)


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    made = DictionaryStore(tmp_path).create("d", "", [])

    def add(n: int) -> None:
        DictionaryStore(tmp_path).change(
            made.id, None, lambda each: each.with_rules((*each.latest.rules, LexiconRule(f"w{n}", "x")))
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert len(DictionaryStore(tmp_path).load(made.id, None).latest.rules) == 24
