"""Gateways of a measurement's own: one, or one on each GPU and HAProxy in front, ready to speak and gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from .balancer import Replica, balancer, free_port

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
LEAST_CORES = 4
"""Of a gateway that is to have its own."""
_REPORT_LINES = 20


@dataclass(frozen=True, slots=True)
class Fleet:
    """Where it is spoken to, and the processes that work for it, without their children."""

    url: str
    pids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Gateway:
    """One that runs: its process, where it is spoken to, and where it tells of its room."""

    pid: int
    url: str
    agent_port: int


class NotStarted(Exception):
    """A gateway, or the balancer, did not come up; the text tells why."""


@asynccontextmanager
async def one_gateway(
    flags: Sequence[str], environment: Mapping[str, str] | None = None, cores: Collection[int] = ()
) -> AsyncIterator[Fleet]:
    """A gateway in a process of its own, on `cores` alone if there are any. Raises NotStarted."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", "--starts-per-s", "1000",
        # Who is not let in is to be counted, not to wait.
        "--queue-wait-ms", "0", *flags,
        stderr=asyncio.subprocess.PIPE, env=os.environ | (environment or {}),
    )  # fmt: skip  # one argument list
    if cores:
        # Before it has looked at its cores: its interpreter is only being started.
        os.sched_setaffinity(process.pid, cores)
    assert process.stderr is not None
    reading = asyncio.create_task(_until_ready(process.stderr))
    try:
        url = await asyncio.wait_for(asyncio.shield(reading), START_TIMEOUT_S)
        # Its log would fill the pipe otherwise.
        draining = asyncio.create_task(_discard(process.stderr))
        yield Fleet(url, [process.pid])
        draining.cancel()
    finally:
        reading.cancel()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()


@asynccontextmanager
async def gateways(count: int, flags: Sequence[str]) -> AsyncIterator[Sequence[Gateway]]:
    """`count` of them, each with a GPU and an equal part of this process's cores for itself. Raises NotStarted."""
    cores = parts_of(sorted(os.sched_getaffinity(0)), count)
    agents = [free_port() for _ in range(count)]
    async with AsyncExitStack() as stack:
        served = await _all(
            stack.enter_async_context(
                one_gateway([*flags, "--agent-port", str(agent)], {"CUDA_VISIBLE_DEVICES": str(gpu)}, cores[gpu])
            )
            for gpu, agent in enumerate(agents)
        )
        yield [Gateway(each.pids[0], each.url, agent) for each, agent in zip(served, agents, strict=True)]


@asynccontextmanager
async def balanced(behind: Sequence[Gateway]) -> AsyncIterator[Fleet]:
    """HAProxy with docker/haproxy.cfg in front of these. Raises NotStarted."""
    haproxy = shutil.which("haproxy")
    if haproxy is None:
        raise NotStarted("haproxy is not installed")
    replicas = [Replica(int(each.url.rstrip("/").rsplit(":", 1)[1]), each.agent_port) for each in behind]
    with tempfile.TemporaryDirectory(prefix="voxgate-fleet-") as folder:
        async with balancer(haproxy, replicas, Path(folder)) as front:
            yield Fleet(front.url, [front.pid, *(each.pid for each in behind)])


def parts_of(cores: Sequence[int], count: int) -> list[Sequence[int]]:
    """Equal parts; where there are not enough to split, no part is told."""
    size = len(cores) // count
    if size < LEAST_CORES:
        return [()] * count
    return [cores[number * size : (number + 1) * size] for number in range(count)]


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Processes started in this block, by this thread, run on `cores` alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _all(starts: Iterable[Coroutine[None, None, Fleet]]) -> list[Fleet]:
    """All at once; when one fails the others are stopped too."""
    try:
        async with asyncio.TaskGroup() as group:
            starting = [group.create_task(start) for start in starts]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in starting]


async def _until_ready(lines: asyncio.StreamReader) -> str:
    seen: list[str] = []
    while line := (await lines.readline()).decode(errors="replace"):
        seen.append(line)
        if "ready after" in line:
            return line.rsplit(" ", 1)[-1].strip()
    raise NotStarted("the gateway did not start:\n" + "".join(seen[-_REPORT_LINES:]))


async def _discard(lines: asyncio.StreamReader) -> None:
    while await lines.read(65_536):
        pass
