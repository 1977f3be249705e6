"""The command as a process: however it ends, nothing of it stays behind."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from voxgate.cli.ready_file import wait_until_ready
from voxgate.pipeline.checkpoint import checkpoint_folder
from voxgate.pipeline.talker.vllm.temporary_folder import PREFIX

pytestmark = pytest.mark.engine

START_S = 180
GONE_S = 10


async def serve(*flags: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", *flags, stderr=PIPE
    )


async def serve_until_ready(ready: Path, *flags: str) -> Process:
    process = await serve("--ready-file", str(ready), *flags)
    await wait_until_ready(ready, process, START_S)
    return process


async def wait_until_loading(process: Process) -> None:
    assert process.stderr is not None
    async with asyncio.timeout(START_S):
        while "loading the voice" not in (line := (await process.stderr.readline()).decode()):
            assert line, "the gateway ended before it loaded the voice"


def family(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def still_running(processes: list[psutil.Process]) -> list[str]:
    _, alive = psutil.wait_procs(processes, timeout=GONE_S)
    return [str(process) for process in alive if runs(process)]


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """Where sockets can lie: the path of `tmp_path` is longer than one of theirs may be."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def names(temporary: Path) -> list[str]:
    """What is there but compiled code, which is kept."""
    return [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")]


def runs(process: psutil.Process) -> bool:
    """Not so for one that ended: a container's first process may not collect what it inherits."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_process_outlives_the_gateway(number: signal.Signals, workers: int, tmp_path: Path) -> None:
    process = await serve_until_ready(tmp_path / "ready", "--slots", "2", "--workers", f"{workers}")
    children = family(process)
    assert len(children) >= (2 if workers == 1 else 4), "the engine, the codec, and workers that serve the sockets"
    process.send_signal(number)
    async with asyncio.timeout(GONE_S):
        assert await process.wait() == (0 if number == signal.SIGTERM else -number)
    assert still_running(children) == []


async def test_what_a_killed_gateway_leaves_in_the_temporary_folder_goes_at_the_next_start(
    short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_tmp))
    left: list[list[str]] = []
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = await serve_until_ready(tmp_path / "ready", "--slots", "2")
        children = family(process)
        process.send_signal(number)
        await process.wait()
        assert still_running(children) == []
        left.append(names(short_tmp))
    (folder,), after = left
    assert folder.startswith(PREFIX)
    assert after == []


async def test_a_broken_checkpoint_is_told_before_anything_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(checkpoint_folder("demo"), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    process = await serve("--checkpoint", str(folder))
    async with asyncio.timeout(START_S):
        _, errors = await process.communicate()
    assert process.returncode == 1
    (line,) = errors.decode().rstrip().splitlines()
    assert line.startswith("voxgate serve: ")
    assert "model.safetensors" in line


async def test_an_engine_that_cannot_start_is_told_in_the_last_line_and_leaves_no_process() -> None:
    process = await serve("--kv-cache-mb", "1")  # not enough for a single utterance
    await wait_until_loading(process)
    children = family(process)
    async with asyncio.timeout(START_S):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().rstrip().splitlines()[-1].startswith("voxgate serve: ")
    assert still_running(children) == []
