"""The cloning service: its lock, the messages to its worker, and the deadline of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
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
from voxgate.pipeline.cloning.job import run_job
from voxgate.pipeline.cloning.recording import RecordingLimits
from voxgate.pipeline.cloning.service import (
    PART_BYTES,
    WORKER_COMMAND,
    CloningJob,
    CloningService,
    CrossProcessLock,
    parse_reply,
)
from voxgate.pipeline.cloning.store import parse_voice
from voxgate.pipeline.errors import AtCapacity, BadVoice, CheckpointError, CloningFailed, SilentAudio

from .small_base import recording


def unique_name() -> str:
    return f"voxgate-test-{uuid.uuid4().hex}"


@pytest.mark.parametrize("name", [None, unique_name()])
async def test_lock_is_held_once_at_a_time(name: str | None) -> None:
    lock = CrossProcessLock(name)
    other = lock if name is None else CrossProcessLock(name)
    async with lock.hold(5):
        with pytest.raises(TimeoutError):
            async with other.hold(0.05):
                raise AssertionError("acquired a lock that is held")
    async with other.hold(5):
        pass


async def test_waiting_task_acquires_released_lock() -> None:
    name = unique_name()
    first, second = CrossProcessLock(name), CrossProcessLock(name)
    order: list[str] = []

    async def wait() -> None:
        async with second.hold(5):
            order.append("second")

    async with first.hold(5):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_lock_of_killed_process_is_released() -> None:
    name = unique_name()
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + {name!r}); print(1, flush=True); input()"
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=PIPE, stdout=PIPE)
    assert holder.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        await holder.stdout.readline()
    with pytest.raises(TimeoutError):
        async with CrossProcessLock(name).hold(0.05):
            raise AssertionError("acquired a lock that is held")
    holder.kill()
    async with asyncio.timeout(DEADLINE_S):
        await holder.wait()
    async with CrossProcessLock(name).hold(5):
        pass


DRAFT = VoiceDraft("ada", text="Grüße.", languages=("german",), description="A tone.")


def job(folder: Path, file: bytes) -> CloningJob:
    return CloningJob(str(folder), "small", DRAFT, 1 << 20, 30.0, file)


def service(folder: Path = Path("nowhere"), **options: Any) -> CloningService:
    return CloningService(folder, "small", **{"max_bytes": 1 << 20, "max_duration_s": 30.0} | options)


def test_job_is_parsed_as_serialized() -> None:
    sent = job(Path("somewhere"), b"\n\n\x00")
    assert CloningJob.from_bytes(b"".join(sent.parts())) == sent


def test_job_makes_same_voice_as_direct_call(base: Path) -> None:
    stored = parse_voice(parse_reply(run_job(job(base, recording()))))
    direct = voice_from_recording(base, "small", DRAFT, recording(), RecordingLimits())
    np.testing.assert_array_equal(stored.voice.speaker_vector, direct.voice.speaker_vector)
    np.testing.assert_array_equal(stored.voice.reference_codes, direct.voice.reference_codes)
    assert stored.voice.description == "A tone."


def test_reply_carries_kind_of_error(base: Path, tmp_path: Path) -> None:
    with pytest.raises(SilentAudio) as caught:
        parse_reply(run_job(job(base, recording(level=0))))
    assert caught.value.param == "audio"
    with pytest.raises(CheckpointError):
        parse_reply(run_job(job(tmp_path, recording())))


def test_unexpected_exception_becomes_cloning_failed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("voxgate.pipeline.cloning.job.voice_from_recording", fail)
    with pytest.raises(CloningFailed, match="MemoryError"):
        parse_reply(run_job(job(base, recording())))


async def test_worker_process_makes_voice(base: Path) -> None:
    async with asyncio.timeout(DEADLINE_S):
        stored = await service(base).clone(DRAFT, recording())
    assert stored.voice.speaker_vector.shape == (24,)


async def test_large_recording_reaches_the_worker_whole() -> None:
    echo = "import sys, json; sys.stdout.write(json.dumps(dict(code='silent_audio', param=None, message=%s)) + chr(10))"
    digest = "__import__('hashlib').sha256(sys.stdin.buffer.read().partition(b'\\n')[2]).hexdigest()"
    sound = os.urandom(3 * PART_BYTES + 7)
    with pytest.raises(SilentAudio, match=hashlib.sha256(sound).hexdigest()):
        await service(command=(sys.executable, "-c", echo % digest)).clone(DRAFT, bytearray(sound))


async def test_reply_without_an_end_is_cut_off() -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(CloningFailed, match="exceeds"):
            await service(command=(sys.executable, "-c", endless)).clone(DRAFT, b"")


async def test_worker_that_aborts_raises_cloning_failed() -> None:
    abort = (sys.executable, "-c", "import os; os.abort()")
    with pytest.raises(CloningFailed, match="without a reply"):
        await service(command=abort).clone(DRAFT, recording())


def hanging_workers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended, also if nothing has waited for it yet
            if "321987" in child.cmdline():
                found.append(child)
    return found


async def test_hanging_worker_is_killed_at_deadline() -> None:
    with pytest.raises(CloningFailed, match=r"within 0\.2 s"):
        await service(command=("sleep", "321987"), deadline_s=0.2).clone(DRAFT, b"x")
    assert not hanging_workers()


async def test_cancelling_kills_worker_and_releases_lock() -> None:
    cloning = service(command=("sleep", "321987"))
    making = asyncio.create_task(cloning.clone(DRAFT, b"x"))
    async with asyncio.timeout(DEADLINE_S):
        while not hanging_workers():
            await asyncio.sleep(0.01)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    assert not hanging_workers()
    async with asyncio.timeout(DEADLINE_S), cloning._lock.hold(20):
        pass


async def test_full_queue_raises_at_capacity() -> None:
    cloning = service(max_waiting=1)
    with cloning.queue_slot(), cloning.queue_slot():
        with pytest.raises(AtCapacity) as caught, cloning.queue_slot():
            pass
        assert caught.value.retry_after_ms
    with cloning.queue_slot():
        pass


async def test_invalid_draft_starts_no_process() -> None:
    with pytest.raises(BadVoice):
        await service(command=("/nonexistent",)).clone(VoiceDraft("../x"), b"")


def test_worker_exits_when_its_parent_has_already_ended() -> None:
    """A pid that is not the parent's stands for a parent that ended before the worker could watch it."""
    worker = subprocess.run(
        [*WORKER_COMMAND, "0"], stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert (worker.returncode, worker.stdout, worker.stderr) == (0, b"", b"")
