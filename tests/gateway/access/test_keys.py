"""API keys: where they come from, what is said about bad ones, and when one is in force."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from voxgate.gateway.access.keys import (
    KEY_PREFIX,
    MAX_KEY_CHARACTERS,
    ApiKey,
    KeyLimits,
    KeyRing,
    KeysError,
    hash_key,
    load_keys,
    new_key,
)
from voxgate.gateway.access.rights import Right

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ADA = f"""
[keys.ada]
hash = "{hash_key("ada's key")}"
utterances = 3
expires = 2030-01-02T00:00:00Z
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_new_keys_are_long_and_differ() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith(KEY_PREFIX) and len(key) >= 43 for key in keys)


def test_keys_come_from_a_file_and_from_entries(file: Path) -> None:
    file.write_text(ADA)
    ring = load_keys(file, [f"bob={hash_key('b')}"])
    ada, bob = ring.find("ada's key"), ring.find("b")
    assert ada is not None
    assert bob is not None
    assert (ada.name, ada.limits) == ("ada", KeyLimits(utterances=3))
    assert (bob.name, bob.limits) == ("bob", KeyLimits())
    assert ring.named("ada") is ada


def test_rights_are_listed_in_a_file_or_in_an_entry(file: Path) -> None:
    entries = f'hash = "{hash_key("a")}"\nrights = ["voices", "speak"]\n'
    file.write_text(f"[keys.ada]\n{entries}")
    ring = load_keys(file, [f"bob={hash_key('b')}:metrics", f"eve={hash_key('e')}:speak+metrics"])
    rights = [key.rights for key in (ring.find(each) for each in "abe") if key is not None]
    assert rights == [{Right.SPEAK, Right.VOICES}, {Right.METRICS}, {Right.SPEAK, Right.METRICS}]


def test_key_without_rights_speaks_only(file: Path) -> None:
    file.write_text(ADA)
    key = load_keys(file, []).find("ada's key")
    assert key is not None
    assert key.rights == {Right.SPEAK}


def test_a_key_counts_until_it_expires(file: Path) -> None:
    file.write_text(ADA)
    key = load_keys(file, []).named("ada")
    assert key is not None
    later = NOW + timedelta(days=1)
    assert not key.expired(later - timedelta(microseconds=1))
    assert key.expired(later)


@pytest.mark.parametrize(
    "presented",
    ["", " ", "ada", "ADA'S KEY", "ada's key ", " ada's key", "ada's key\x00", hash_key("ada's key"), "\ud800", "ä"],
)
def test_other_credentials_are_refused(presented: str, file: Path) -> None:
    file.write_text(ADA)
    assert load_keys(file, []).find(presented) is None


def test_overlong_keys_are_not_hashed() -> None:
    long = "k" * (MAX_KEY_CHARACTERS + 1)
    assert KeyRing([ApiKey("long", hash_key(long))]).find(long) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("keys", "is not valid TOML"),
        ('[keys.a]\nhash = "secret-in-clear"', "keys.a.hash"),
        (f'[keys.a]\nhash = "{hash_key("x")}"\nrights = ["everything"]', "keys.a.rights"),
        (f'[keys.a]\nhash = "{hash_key("x")}"\nrights = []', "keys.a.rights"),
        ("[keys.a]\n", "keys.a.hash"),
        (f'[keys.a]\nhash = "{hash_key("x")}"\nutterances = 0', "keys.a.utterances"),
        (f'[keys.a]\nhash = "{hash_key("x")}"\nlimit = 3', "keys.a.limit"),
        (f'[keys.a]\nhash = "{hash_key("x")}"\nexpires = 2030-01-01T00:00:00', "keys.a.expires"),
        (f'[keys."a b"]\nhash = "{hash_key("x")}"', "key name"),
        (f'[keys._a]\nhash = "{hash_key("x")}"', "the first a letter or digit"),
        (f'[keys.a]\nhash = "{hash_key("x")}"\n[keys.b]\nhash = "{hash_key("x")}"', "twice"),
        ("key = 1", "key in"),
    ],
)
def test_a_bad_file_is_explained_without_quoting_it(text: str, says: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(KeysError) as refused:
        load_keys(file, [])
    assert says in str(refused.value)
    assert "secret-in-clear" not in str(refused.value)


def test_a_missing_file_is_named(file: Path) -> None:
    with pytest.raises(KeysError, match=r"cannot read .*keys\.toml"):
        load_keys(file, [])


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "ada",
        "secret-in-clear",
        "secret-in-clear=",
        "ada=secret-in-clear",
        "ada=sha256:12",
        "=" + hash_key("x"),
        f"ada={hash_key('x')}:",
        f"ada={hash_key('x')}:all",
        f"ada={hash_key('x')}:speak,voices",
    ],
)
def test_a_bad_entry_is_refused(entry: str) -> None:
    with pytest.raises(KeysError) as refused:
        load_keys(None, [entry])
    assert "secret-in-clear" not in str(refused.value)


def test_own_limits_override_the_defaults() -> None:
    own = KeyLimits(utterances=3)
    assert own.over(KeyLimits(utterances=1, sockets=7)) == KeyLimits(utterances=3, sockets=7)
