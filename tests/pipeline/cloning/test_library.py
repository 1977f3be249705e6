"""The voice library: uploads, changes of the folder by other processes, and voices that do not fit."""

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


class FakeCloning(CloningService):
    """Makes the same voice from every recording; a cleared `released` holds it."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(Path("nowhere"), "small", max_bytes=1000, max_duration_s=30.0)
        self.changes = changes
        self.released = asyncio.Event()
        self.released.set()
        self.calls = 0

    async def clone(self, draft: VoiceDraft, recording: bytes) -> StoredVoice:
        assert recording
        self.calls += 1
        await self.released.wait()
        return stored_voice(draft.name, **self.changes)


class Bench:
    """A library with a real store and a synthesizer of tones."""

    def __init__(self, folder: Path, cloning: FakeCloning | None = None, space_id: str = "here") -> None:
        self.model = ToneSynthesizer()
        self.store = VoiceStore(folder, max_voices=3)
        self.library = VoiceLibrary(self.store, self.model, space_id, cloning)

    @property
    def offered(self) -> list[str]:
        return sorted(name for name, voice in self.model.voices.items() if voice.cloned)


async def test_added_voice_is_offered_at_once_and_after_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeCloning())
    stored = await bench.library.add(VoiceDraft("Eve"), b"x")
    assert stored.name == "eve"
    assert bench.offered == ["eve"] == list(bench.library.offered)
    again = Bench(tmp_path)
    assert again.offered == []
    await again.library.refresh()
    assert again.offered == ["eve"]


async def test_removed_voice_is_withdrawn_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeCloning())
    await bench.library.add(VoiceDraft("eve"), b"x")
    await bench.library.remove("Eve")
    assert bench.offered == [] == bench.store.names()
    for name in ("eve", "ada"):  # the second is the model's own
        with pytest.raises(UnknownVoice):
            await bench.library.remove(name)
    assert "ada" in bench.model.voices


async def test_refresh_follows_changes_of_folder(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.store.add(stored_voice("eve"))
    bench.store.add(stored_voice("max"))
    await bench.library.refresh()
    assert bench.offered == ["eve", "max"]
    bench.store.remove("max")
    bench.store.remove("eve")
    bench.store.add(stored_voice("eve", description="another"))
    await bench.library.refresh()
    assert bench.offered == ["eve"]
    assert bench.model.voices["eve"].description == "another"
    (tmp_path / "eve.safetensors").write_bytes(b"broken")
    await bench.library.refresh()
    assert bench.offered == []


async def test_unchanged_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    bench.store.add(stored_voice("eve"))
    await bench.library.refresh()
    monkeypatch.setattr(VoiceStore, "load", lambda *_: pytest.fail("read again"))
    await bench.library.refresh()


async def test_voices_of_other_models_are_logged_once_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    bench.store.add(stored_voice("far", origin=replace(ORIGIN, space="elsewhere", checkpoint="big")))
    bench.store.add(stored_voice("wide", speaker_vector=[1.0] * 9))
    bench.store.add(stored_voice("unknown", origin=replace(ORIGIN, space="")))
    await bench.library.refresh()
    await bench.library.refresh()
    assert bench.offered == ["unknown"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "voice far is not offered",
        "voice wide is not offered",
    ]
    assert "made with big" in caplog.text
    await bench.library.remove("far")
    assert bench.store.names() == ["unknown", "wide"]


async def test_model_without_speaker_encoder_offers_stored_voices_but_makes_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, space_id="")
    bench.store.add(stored_voice("eve"))
    await bench.library.refresh()
    assert bench.offered == ["eve"]
    with pytest.raises(UnsupportedOption, match="Base"):
        await bench.library.add(VoiceDraft("max"), b"x")


@pytest.mark.parametrize("name", ["ada", "eve"])
async def test_taken_name_is_refused_before_cloning(tmp_path: Path, name: str) -> None:
    cloning = FakeCloning()
    bench = Bench(tmp_path, cloning)
    await bench.library.add(VoiceDraft("eve"), b"x")
    with pytest.raises(VoiceExists):
        await bench.library.add(VoiceDraft(name), b"x")
    assert cloning.calls == 1


async def test_first_of_two_uploads_of_same_name_wins(tmp_path: Path) -> None:
    cloning = FakeCloning()
    cloning.released.clear()
    bench = Bench(tmp_path, cloning)
    both = [asyncio.create_task(bench.library.add(VoiceDraft("eve"), b"x")) for _ in range(2)]
    while cloning.calls < 2:
        await asyncio.sleep(0)
    cloning.released.set()
    results = await asyncio.gather(*both, return_exceptions=True)
    assert [type(result) for result in results] == [StoredVoice, VoiceExists]
    assert bench.offered == ["eve"]


async def test_errors_for_clients_contain_no_paths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, cloning := FakeCloning())

    async def fail(*_: Any) -> StoredVoice:
        raise CheckpointError("/secret/model.safetensors is gone")

    cloning.clone = fail  # type: ignore[method-assign]  # a fault injected into the fake
    with pytest.raises(CloningFailed) as failed:
        await bench.library.add(VoiceDraft("eve"), b"x")
    assert "/secret" not in str(failed.value)
    assert "/secret" in caplog.text
    with pytest.raises(UnknownVoice) as unknown:
        await bench.library.remove("eve")
    assert str(tmp_path) not in str(unknown.value)


async def test_voice_that_does_not_fit_is_not_stored(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeCloning(speaker_vector=[1.0] * 9))
    with pytest.raises(BadVoice):
        await bench.library.add(VoiceDraft("eve"), b"x")
    assert bench.store.names() == [] == bench.offered


async def test_voice_that_cannot_be_stored_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, FakeCloning())
    for name in ("a", "b", "c"):
        await bench.library.add(VoiceDraft(name), b"x")
    with pytest.raises(TooManyVoices):
        await bench.library.add(VoiceDraft("d"), b"x")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(VoiceStore, "add", full)
    with pytest.raises(CloningFailed, match="No space"):
        await bench.library.add(VoiceDraft("d"), b"x")
    assert bench.offered == ["a", "b", "c"]


async def test_watching_continues_after_file_system_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    bench.store.add(stored_voice("eve"))

    def broken(_: VoiceStore) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(VoiceStore, "versions", broken)
        watching = asyncio.create_task(bench.library.watch(interval_s=0))
        while "Permission denied" not in caplog.text:
            await asyncio.sleep(0)
    while bench.offered != ["eve"]:
        await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
