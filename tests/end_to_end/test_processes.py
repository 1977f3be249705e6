"""The command as a process: however it ends, none of its processes and temporary files remains."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from fakes.waiting import DEADLINE_S
from voxgate.client import Notice, connect
from voxgate.gateway.ready_file import ReadyGateway, wait_until_ready
from voxgate.pipeline.checkpoint.checkpoint import checkpoint_folder
from voxgate.pipeline.ipc.temporary_folder import FOLDER_PREFIX

from .serving import ENGINE_START_S

pytestmark = pytest.mark.engine

TEXT = "This sentence is cut off when the gateway ends, so it is long enough to last until then."


async def start(*flags: str) -> Process:
    command = [sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", *flags]
    return await asyncio.create_subprocess_exec(*command, stderr=PIPE)


@asynccontextmanager
async def started(folder: Path, *flags: str) -> AsyncIterator[tuple[Process, ReadyGateway]]:
    """A gateway that is ready to speak."""
    ready_file = folder / "ready.json"
    process = await start("--ready-file", str(ready_file), *flags)
    try:
        yield process, await wait_until_ready(ready_file, process, ENGINE_START_S)
    finally:
        if process.returncode is None:
            process.kill()
        ready_file.unlink(missing_ok=True)


def children(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def still_running(processes: list[psutil.Process]) -> list[str]:
    """Those that do not end within the deadline."""
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    return [str(process) for process in alive if not is_zombie(process)]


def is_zombie(process: psutil.Process) -> bool:
    """Whether it has ended and waits for its parent, which in a container may never collect it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def exit_status(process: Process) -> int:
    async with asyncio.timeout(DEADLINE_S):
        return await process.wait()


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder for sockets: the path of `tmp_path` is longer than the path of a socket may be."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def remaining(folder: Path) -> list[str]:
    """Names of the files there, without compiled kernels, which are kept."""
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")]


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGKILL, 2),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.nightly),
    ],
)
async def test_no_process_outlives_a_gateway_that_speaks(number: signal.Signals, workers: int, tmp_path: Path) -> None:
    async with started(tmp_path, "--slots", "2", "--workers", f"{workers}", "--shutdown-grace-s", "1") as (
        process,
        ready,
    ):
        processes = children(process)
        assert len(processes) >= (2 if workers == 1 else 4), "engine, codec, and with several workers the workers"
        async with connect(ready.url) as session, session.utterance() as utterance:
            await utterance.send(TEXT)
            async for _ in utterance.audio():
                process.send_signal(number)
                break
            assert await exit_status(process) == (0 if number == signal.SIGTERM else -number)
        assert still_running(processes) == []


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly)])
async def test_sigterm_to_every_process_finishes_speech(workers: int, tmp_path: Path) -> None:
    """As systemd stops a service, and supervisord with `stopasgroup`."""
    async with started(tmp_path, "--slots", "2", "--workers", f"{workers}") as (process, ready):
        processes = children(process)
        async with connect(ready.url) as session, session.utterance() as utterance:
            await utterance.feed([TEXT])
            audio = utterance.audio()
            await anext(audio)
            for each in (*processes, psutil.Process(process.pid)):
                each.send_signal(signal.SIGTERM)
            events = [event async for event in utterance.events()]
        assert await exit_status(process) == 0
        assert [event for event in events if isinstance(event, Notice)] == []
        assert utterance.done is not None
        assert utterance.done.reason == "end"
        assert still_running(processes) == []


@pytest.mark.nightly
async def test_next_start_removes_temporary_files_of_a_killed_gateway(
    short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_tmp))
    left: list[list[str]] = []
    for number in (signal.SIGKILL, signal.SIGTERM):
        async with started(tmp_path, "--slots", "2") as (process, _):
            processes = children(process)
            process.send_signal(number)
            await exit_status(process)
            assert still_running(processes) == []
        left.append(remaining(short_tmp))
    (folder,), after = left
    assert folder.startswith(FOLDER_PREFIX)
    assert after == []


async def test_broken_checkpoint_is_reported_before_any_process_starts(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(checkpoint_folder("demo"), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    process = await start("--checkpoint", str(folder))
    async with asyncio.timeout(DEADLINE_S):
        _, errors = await process.communicate()
    assert process.returncode == 1
    (line,) = errors.decode().rstrip().splitlines()
    assert line.startswith("voxgate serve: ")
    assert "model.safetensors" in line


@pytest.mark.nightly
async def test_engine_that_cannot_start_is_reported_in_the_last_line() -> None:
    process = await start("--kv-cache-mb", "1")  # too little for a single utterance
    assert process.stderr is not None
    async with asyncio.timeout(ENGINE_START_S):
        while b"loading the voice" not in (line := await process.stderr.readline()):
            assert line, "the gateway ended before it loaded the voice"
        processes = children(process)
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().rstrip().splitlines()[-1].startswith("voxgate serve: ")
    assert still_running(processes) == []
