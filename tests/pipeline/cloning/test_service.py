"""Turns over several processes."""
# TODO-DOC The process that listens to recordings: what it answers, and that it never outlasts its deadline.

from __future__ import annotations

import asyncio
import sys
import uuid
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.cloning.creation import VoiceDraft, voice_from_recording
from voxgate.pipeline.cloning.recording import RecordingLimits
from voxgate.pipeline.cloning.service import CloningJob, CloningService, CrossProcessLock, voice_file_of
from voxgate.pipeline.cloning.store import from_bytes
from voxgate.pipeline.cloning.worker import make
from voxgate.pipeline.errors import AtCapacity, BadVoice, CheckpointError, CloningFailed, SilentAudio

from .small_base import recording


def a_name() -> str:
    return f"voxgate-test-{uuid.uuid4().hex}"


@pytest.mark.parametrize("name", [None, a_name()])
async def test_one_at_a_time(name: str | None) -> None:
    turn = CrossProcessLock(name)
    others = turn if name is None else CrossProcessLock(name)
    async with turn.taken(5):
        with pytest.raises(TimeoutError):
            async with others.taken(0.05):
                raise AssertionError("it is taken")
    async with others.taken(5):
        pass


async def test_who_waits_has_it_next() -> None:
    name = a_name()
    first, second = CrossProcessLock(name), CrossProcessLock(name)
    had: list[str] = []

    async def wait() -> None:
        async with second.taken(5):
            had.append("second")

    async with first.taken(5):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        had.append("first")
    await waiting
    assert had == ["first", "second"]


async def test_a_process_that_dies_gives_its_turn_back() -> None:
    name = a_name()
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + {name!r}); print(1, flush=True); input()"
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=PIPE, stdout=PIPE)
    assert holder.stdout is not None
    await holder.stdout.readline()
    with pytest.raises(TimeoutError):
        async with CrossProcessLock(name).taken(0.05):
            raise AssertionError("it is taken")
    holder.kill()
    await holder.wait()
    async with CrossProcessLock(name).taken(5):
        pass


DRAFT = VoiceDraft("ada", text="Grüße.", languages=("german",), description="A tone.")


def job(folder: Path, file: bytes) -> CloningJob:
    return CloningJob(str(folder), "small", DRAFT, 1 << 20, 30.0, file)


def service(folder: Path = Path("nowhere"), **options: Any) -> CloningService:
    return CloningService(folder, "small", **{"max_bytes": 1 << 20, "max_duration_s": 30.0} | options)


def test_a_job_survives_the_pipe() -> None:
    sent = job(Path("somewhere"), b"\n\n\x00")
    assert CloningJob.from_bytes(sent.to_bytes()) == sent


def test_the_worker_makes_the_voice(base: Path) -> None:
    stored = from_bytes(voice_file_of(make(job(base, recording()))))
    direct = voice_from_recording(base, "small", DRAFT, recording(), RecordingLimits())
    np.testing.assert_array_equal(stored.voice.speaker_vector, direct.voice.speaker_vector)
    np.testing.assert_array_equal(stored.voice.reference_codes, direct.voice.reference_codes)
    assert stored.voice.description == "A tone."


def test_the_worker_reports_errors_by_their_kind(base: Path, tmp_path: Path) -> None:
    with pytest.raises(SilentAudio) as caught:
        voice_file_of(make(job(base, recording(level=0))))
    assert caught.value.param == "audio"
    with pytest.raises(CheckpointError):
        voice_file_of(make(job(tmp_path, recording())))


def test_an_unforeseen_failure_is_the_processes(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("voxgate.pipeline.cloning.worker.voice_from_recording", fail)
    with pytest.raises(CloningFailed, match="MemoryError"):
        voice_file_of(make(job(base, recording())))


async def test_a_process_of_its_own_makes_a_voice(base: Path) -> None:
    async with asyncio.timeout(DEADLINE_S):
        stored = await service(base).clone(DRAFT, recording())
    assert stored.voice.speaker_vector.shape == (24,)


def script(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def test_a_process_that_dies_is_an_error() -> None:
    abort = (sys.executable, "-c", "import os; os.abort()")
    with pytest.raises(CloningFailed, match="without an answer"):
        await service(command=abort).clone(DRAFT, recording())


def hanging() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "321987" in child.cmdline()]


async def test_a_process_that_hangs_is_stopped() -> None:
    with pytest.raises(CloningFailed, match=r"within 0\.2 s"):
        await service(command=("sleep", "321987"), deadline_s=0.2).clone(DRAFT, b"x")
    assert not hanging()


async def test_cancelling_stops_the_process_and_frees_the_turn() -> None:
    cloning = service(command=("sleep", "321987"))
    making = asyncio.create_task(cloning.clone(DRAFT, b"x"))
    async with asyncio.timeout(DEADLINE_S):
        while not hanging():
            await asyncio.sleep(0.01)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    assert not hanging()
    async with asyncio.timeout(DEADLINE_S), cloning._turn.taken(20):
        pass


async def test_the_queue_is_short() -> None:
    cloning = service(max_waiting=1)
    with cloning.place(), cloning.place():
        with pytest.raises(AtCapacity) as caught, cloning.place():
            pass
        assert caught.value.retry_after_ms
    with cloning.place():
        pass


async def test_a_bad_draft_starts_no_process() -> None:
    with pytest.raises(BadVoice):
        await service(command=("/nonexistent",)).clone(VoiceDraft("../x"), b"")
