"""Store and model held together: uploads, what others do to the folder, and what does not fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.pipeline.cloning.creation import VoiceDraft
from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.cloning.service import CloningService
from voxgate.pipeline.cloning.store import StoredVoice, VoiceStore
from voxgate.pipeline.errors import (
    BadVoice,
    CheckpointError,
    CloningFailed,
    TooManyVoices,
    UnknownVoice,
    UnsupportedOption,
    VoiceExists,
)

from .voices import ORIGIN, stored_voice


class Listener(CloningService):
    """Makes the same voice of everything, without listening; `pause` holds it until it is set."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(Path("nowhere"), "small", max_bytes=1000, max_duration_s=30.0)
        self.changes = changes
        self.pause = asyncio.Event()
        self.pause.set()
        self.asked = 0

    async def clone(self, draft: VoiceDraft, recording: bytes) -> StoredVoice:
        assert recording
        self.asked += 1
        await self.pause.wait()
        return stored_voice(draft.name, **self.changes)


class Room:
    def __init__(self, folder: Path, listener: Listener | None = None, space: str = "here") -> None:
        self.model = ToneSynthesizer()
        self.store = VoiceStore(folder, most_voices=3)
        self.library = VoiceLibrary(self.store, self.model, space, listener)

    @property
    def offered(self) -> list[str]:
        return sorted(name for name, voice in self.model.voices.items() if voice.cloned)


async def test_an_upload_is_offered_at_once_and_after_a_restart(tmp_path: Path) -> None:
    room = Room(tmp_path, Listener())
    stored = await room.library.add(VoiceDraft("Eve"), b"x")
    assert stored.name == "eve"
    assert room.offered == ["eve"] == list(room.library.offered)
    again = Room(tmp_path)
    assert again.offered == []
    await again.library.refresh()
    assert again.offered == ["eve"]


async def test_a_removed_voice_is_gone_at_once(tmp_path: Path) -> None:
    room = Room(tmp_path, Listener())
    await room.library.add(VoiceDraft("eve"), b"x")
    await room.library.remove("Eve")
    assert room.offered == [] == room.store.names()
    for name in ("eve", "ada"):  # the second is the model's own
        with pytest.raises(UnknownVoice):
            await room.library.remove(name)
    assert "ada" in room.model.voices


async def test_what_others_do_to_the_folder_is_followed(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.store.add(stored_voice("eve"))
    room.store.add(stored_voice("max"))
    await room.library.refresh()
    assert room.offered == ["eve", "max"]
    room.store.remove("max")
    room.store.remove("eve")
    room.store.add(stored_voice("eve", description="another"))
    await room.library.refresh()
    assert room.offered == ["eve"]
    assert room.model.voices["eve"].description == "another"
    (tmp_path / "eve.safetensors").write_bytes(b"broken")
    await room.library.refresh()
    assert room.offered == []


async def test_files_that_did_not_change_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(tmp_path)
    room.store.add(stored_voice("eve"))
    await room.library.refresh()
    monkeypatch.setattr(VoiceStore, "load", lambda *_: pytest.fail("read again"))
    await room.library.refresh()


async def test_voices_of_another_model_are_told_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = Room(tmp_path)
    room.store.add(stored_voice("far", origin=replace(ORIGIN, space="elsewhere", checkpoint="big")))
    room.store.add(stored_voice("wide", speaker_vector=[1.0] * 9))
    room.store.add(stored_voice("unknown", origin=replace(ORIGIN, space="")))
    await room.library.refresh()
    await room.library.refresh()
    assert room.offered == ["unknown"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the voice far is not offered",
        "the voice wide is not offered",
    ]
    assert "made with big" in caplog.text
    await room.library.remove("far")
    assert room.store.names() == ["unknown", "wide"]


async def test_a_model_without_a_speaker_encoder_takes_what_fits_but_cannot_listen(tmp_path: Path) -> None:
    room = Room(tmp_path, space="")
    room.store.add(stored_voice("eve"))
    await room.library.refresh()
    assert room.offered == ["eve"]
    with pytest.raises(UnsupportedOption, match="Base"):
        await room.library.add(VoiceDraft("max"), b"x")


@pytest.mark.parametrize("name", ["ada", "eve"])
async def test_a_name_that_is_taken_is_refused_before_listening(tmp_path: Path, name: str) -> None:
    listener = Listener()
    room = Room(tmp_path, listener)
    await room.library.add(VoiceDraft("eve"), b"x")
    with pytest.raises(VoiceExists):
        await room.library.add(VoiceDraft(name), b"x")
    assert listener.asked == 1


async def test_of_two_uploads_of_one_name_the_first_made_wins(tmp_path: Path) -> None:
    listener = Listener()
    listener.pause.clear()
    room = Room(tmp_path, listener)
    both = [asyncio.create_task(room.library.add(VoiceDraft("eve"), b"x")) for _ in range(2)]
    while listener.asked < 2:
        await asyncio.sleep(0)
    listener.pause.set()
    results = await asyncio.gather(*both, return_exceptions=True)
    assert [type(result) for result in results] == [StoredVoice, VoiceExists]
    assert room.offered == ["eve"]


async def test_a_stranger_is_not_told_where_things_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = Room(tmp_path, listener := Listener())

    async def fail(*_: Any) -> StoredVoice:
        raise CheckpointError("/secret/model.safetensors is gone")

    listener.clone = fail  # type: ignore[method-assign]  # it is to fail
    with pytest.raises(CloningFailed) as failed:
        await room.library.add(VoiceDraft("eve"), b"x")
    assert "/secret" not in str(failed.value)
    assert "/secret" in caplog.text
    with pytest.raises(UnknownVoice) as unknown:
        await room.library.remove("eve")
    assert str(tmp_path) not in str(unknown.value)


async def test_a_voice_that_does_not_fit_is_not_kept(tmp_path: Path) -> None:
    room = Room(tmp_path, Listener(speaker_vector=[1.0] * 9))
    with pytest.raises(BadVoice):
        await room.library.add(VoiceDraft("eve"), b"x")
    assert room.store.names() == [] == room.offered


async def test_a_voice_that_cannot_be_kept_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(tmp_path, Listener())
    for name in ("a", "b", "c"):
        await room.library.add(VoiceDraft(name), b"x")
    with pytest.raises(TooManyVoices):
        await room.library.add(VoiceDraft("d"), b"x")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(VoiceStore, "add", full)
    with pytest.raises(CloningFailed, match="No space"):
        await room.library.add(VoiceDraft("d"), b"x")
    assert room.offered == ["a", "b", "c"]


async def test_watching_survives_a_disk_that_fails_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = Room(tmp_path)
    room.store.add(stored_voice("eve"))

    def broken(_: VoiceStore) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(VoiceStore, "versions", broken)
        watching = asyncio.create_task(room.library.watch(interval_s=0))
        while "Permission denied" not in caplog.text:
            await asyncio.sleep(0)
    while room.offered != ["eve"]:
        await asyncio.sleep(0)
    watching.cancel()
