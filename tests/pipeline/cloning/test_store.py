"""Voice files, and the folder that holds them."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from voxgate.pipeline.cloning.store import (
    FORMAT,
    MAX_VOICE_FILE_BYTES,
    VoiceStore,
    parse_voice,
    serialize_voice,
    validated_name,
)
from voxgate.pipeline.errors import BadVoice, TooManyVoices, UnknownVoice, VoiceExists
from voxgate.pipeline.interface import VoiceOwnership

from .voices import in_context_voice, parts, stored_voice


@pytest.mark.parametrize("stored", [stored_voice(), in_context_voice()], ids=["vector", "in-context"])
def test_voice_is_parsed_as_serialized(stored: Any) -> None:
    assert parts(parse_voice(serialize_voice(stored))) == parts(stored)


@pytest.mark.parametrize("ownership", [VoiceOwnership(), VoiceOwnership("ada"), VoiceOwnership("ada", shared=True)])
def test_owner_is_stored_with_the_voice(ownership: VoiceOwnership) -> None:
    stored = stored_voice().owned_by(ownership)
    assert parse_voice(serialize_voice(stored)).voice.ownership == ownership


def test_file_without_an_owner_belongs_to_every_key() -> None:
    assert parse_voice(save(VECTOR, METADATA)).voice.ownership == VoiceOwnership()
    assert not parse_voice(save(VECTOR, METADATA | {"owner": "ada", "shared": "1"})).voice.ownership.shared


VECTOR = {"speaker_vector": np.ones(8, np.float32)}
METADATA = {"format": FORMAT, "name": "ada"}


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "not a voice file"),
        (b"\x80\x04\x95\x00", "not a voice file"),
        (serialize_voice(stored_voice())[:-4], "not a voice file"),
        (bytes(MAX_VOICE_FILE_BYTES + 1), "must have at most"),
        (save(VECTOR), "format"),
        (save(VECTOR, METADATA | {"format": "voxgate-voice-9"}), "format"),
        (save({"other": np.ones(8)}, METADATA), "format"),
        (save(VECTOR, {"format": FORMAT}), "must have a name"),
        (save({"speaker_vector": np.full(8, np.nan)}, METADATA), "finite"),
        (save(VECTOR, METADATA | {"languages": "german"}), "languages"),
        (save(VECTOR, METADATA | {"languages": json.dumps(3)}), "languages"),
        (save(VECTOR, METADATA | {"reference_text": "Hello."}), "both its text and its codes"),
    ],
)
def test_invalid_file_is_refused(file: bytes, words: str) -> None:
    with pytest.raises(BadVoice, match=words):
        parse_voice(file)


def test_damaged_file_raises_bad_voice_or_is_parsed() -> None:
    whole = serialize_voice(in_context_voice())
    random = np.random.RandomState(0)
    parsed = 0
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 6)):
            damaged[random.randint(len(damaged))] = random.randint(256)
        with contextlib.suppress(BadVoice):
            parse_voice(bytes(damaged))
            parsed += 1
    assert parsed < 500


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path / "voices", max_voices=3)


def test_voice_is_stored_until_removed(store: VoiceStore) -> None:
    assert store.load_all() == {}
    store.add(in_context_voice("bob"))
    store.add(stored_voice("ada"))
    again = VoiceStore(store.folder)
    assert again.names() == ["ada", "bob"]
    assert parts(again.load("BOB")) == parts(in_context_voice("bob"))
    assert list(again.load_all()) == ["ada", "bob"]
    store.remove("bob")
    assert again.names() == ["ada"]
    with pytest.raises(UnknownVoice):
        again.load("bob")
    with pytest.raises(UnknownVoice):
        store.remove("bob")


def test_voice_does_not_replace_another(store: VoiceStore) -> None:
    store.add(stored_voice("ada"))
    with pytest.raises(VoiceExists):
        store.add(stored_voice("ada", description="another"))
    assert store.load("ada").voice.description == ""
    assert [path.name for path in store.folder.iterdir()] == ["ada.safetensors"]


def test_number_of_voices_is_limited(store: VoiceStore) -> None:
    for name in ("a", "b", "c"):
        store.add(stored_voice(name))
    with pytest.raises(TooManyVoices, match="3 voices"):
        store.add(stored_voice("d"))
    store.remove("a")
    store.add(stored_voice("d"))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../ada", "a/b", "a\\b", "-ada", "_ada", "ada.x", "ä", "a b", "a\n", "a" * 65, "a\0"]
)
def test_unsafe_names_are_refused(store: VoiceStore, name: str) -> None:
    for refuse in (store.load, store.remove, validated_name):
        with pytest.raises(BadVoice) as caught:
            refuse(name)
        assert caught.value.param == "name"
    assert not store.folder.exists()


def test_names_are_lower_case(store: VoiceStore) -> None:
    assert validated_name("Ada-Lovelace_2") == "ada-lovelace_2"
    with pytest.raises(BadVoice, match="lower case"):
        store.add(stored_voice("Ada"))


def test_broken_file_does_not_affect_other_voices(store: VoiceStore, caplog: pytest.LogCaptureFixture) -> None:
    store.add(stored_voice("ada"))
    store.add(stored_voice("bob"))
    broken = store.folder / "bob.safetensors"
    broken.write_bytes(broken.read_bytes()[:50])
    with caplog.at_level(logging.WARNING):
        assert list(store.load_all()) == ["ada"]
    assert ["bob is not offered" in record.getMessage() for record in caplog.records] == [True]
    assert list(store.load_all(["ada", "gone"])) == ["ada"]
    assert broken.exists()
    store.remove("bob")
    assert not broken.exists()


def test_file_with_voice_of_another_name_is_not_loaded(store: VoiceStore, caplog: pytest.LogCaptureFixture) -> None:
    store.add(stored_voice("ada"))
    (store.folder / "eve.safetensors").write_bytes(serialize_voice(stored_voice("ada")))
    assert list(store.load_all()) == ["ada"]
    assert "holds a voice named 'ada'" in caplog.text


def test_other_files_are_ignored(store: VoiceStore) -> None:
    store.add(stored_voice("ada"))
    (store.folder / "README").write_text("mine")
    (store.folder / "sub.safetensors").mkdir()
    (store.folder / ".half.draft").write_bytes(b"x")
    (store.folder / "Not Safe.safetensors").write_bytes(b"x")
    assert store.names() == ["ada"]


def test_versions_change_when_file_is_replaced(store: VoiceStore) -> None:
    assert store.versions() == {}
    other = VoiceStore(store.folder)
    other.add(stored_voice("ada"))
    first = store.versions()
    assert list(first) == ["ada"]
    assert store.versions() == first
    # Keeping the first file allocated makes the second one differ by its inode, even at the same time and size.
    (store.folder / "kept").hardlink_to(store.folder / "ada.safetensors")
    other.remove("ada")
    other.add(stored_voice("ada"))
    assert store.versions() != first


def test_file_system_without_hard_links(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store.add(stored_voice("ada"))
    with pytest.raises(VoiceExists):
        store.add(stored_voice("ada", description="another"))
    assert store.load("ada").voice.description == ""
    assert [path.name for path in store.folder.iterdir()] == ["ada.safetensors"]


def test_full_disk_leaves_no_file(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.add(stored_voice("ada"))
    assert list(store.folder.iterdir()) == []
