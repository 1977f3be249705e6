"""The real HAProxy, with the configuration that ships, in front of replicas on this machine."""
# TODO-DOC Gateways of a measurement's own: one, or one on each GPU and HAProxy in front, ready to speak and gone
# TODO-DOC afterwards.

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

CONFIGURATION = Path(__file__).resolve().parents[1] / "docker/haproxy.cfg"
"""Beside the code in a checkout; an installed package does not have it."""
READY_S = 10.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Replica:
    """A gateway behind the balancer: where it speaks, and where it tells of its room."""

    port: int
    agent_port: int


def free_port() -> int:
    """A port nobody listens to now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def configuration(replicas: Sequence[Replica], port: int, inside_port: int) -> str:
    """What ships, with addresses of this machine, and looking five times as often so that nobody need wait."""
    text = CONFIGURATION.read_text("utf-8")
    servers = "\n".join(
        f"    server g{number} 127.0.0.1:{replica.port} agent-port {replica.agent_port}"
        for number, replica in enumerate(replicas)
    )
    changes = {
        "bind :8080": f"bind 127.0.0.1:{port}",
        "bind :8404": f"bind 127.0.0.1:{inside_port}",
        "check inter 1s": "check inter 200ms",
        "agent-inter 1s": "agent-inter 200ms",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    text, replaced = re.subn(r"^ +server-template .*$", servers, text, flags=re.MULTILINE)
    assert replaced == 1
    return text


class Balancer:
    """A running HAProxy, its process `pid`."""

    def __init__(self, pid: int, port: int, inside_port: int) -> None:
        self.pid = pid
        self.url = f"http://127.0.0.1:{port}"
        self.inside_url = f"http://127.0.0.1:{inside_port}"

    async def servers(self) -> dict[str, dict[str, str]]:
        """HAProxy's own statistics of each replica."""
        text = await asyncio.to_thread(_get, f"{self.inside_url}/;csv")
        rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
        return {row["svname"]: row for row in rows if row["pxname"] == "gateways" and row["svname"].startswith("g")}

    async def until(self, **states: str) -> None:
        """Until each named replica's status begins so. Raises TimeoutError."""
        async with asyncio.timeout(READY_S):
            while True:
                servers = await self.servers()
                if all(servers[name]["status"].startswith(state) for name, state in states.items()):
                    return
                await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def balancer(haproxy: str, replicas: Sequence[Replica], folder: Path) -> AsyncIterator[Balancer]:
    """HAProxy in front of `replicas`, once it has seen all of them up."""
    port, inside_port = free_port(), free_port()
    path = folder / "haproxy.cfg"
    path.write_text(configuration(replicas, port, inside_port), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(haproxy, "-db", "-f", path, stdout=DEVNULL, stderr=PIPE)
    try:
        running = Balancer(process.pid, port, inside_port)
        await _until_it_answers(inside_port)
        await running.until(**{f"g{number}": "UP" for number in range(len(replicas))})
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        said = (await process.communicate())[1].decode()
        assert "[ALERT]" not in said, said


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=READY_S) as answer:
        text: str = answer.read().decode()
        return text


async def _until_it_answers(port: int) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(LOOK_S)
            else:
                writer.close()
                return


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
class GatewayProcess:
    """One that runs: its process, where it is spoken to, and where it tells of its room."""

    pid: int
    url: str
    agent_port: int


class GatewayStartError(Exception):
    """A gateway, or the balancer, did not come up; the text tells why."""


@asynccontextmanager
async def one_gateway(
    flags: Sequence[str], environment: Mapping[str, str] | None = None, cores: Collection[int] = ()
) -> AsyncIterator[Fleet]:
    """A gateway in a process of its own, on `cores` alone if there are any. Raises GatewayStartError."""
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
async def gateways(count: int, flags: Sequence[str]) -> AsyncIterator[Sequence[GatewayProcess]]:
    """`count` of them, each with a GPU and an equal part of this process's cores for itself. Raises GatewayStartError."""
    cores = parts_of(sorted(os.sched_getaffinity(0)), count)
    agents = [free_port() for _ in range(count)]
    async with AsyncExitStack() as stack:
        served = await _all(
            stack.enter_async_context(
                one_gateway(
                    [*flags, "--haproxy-agent-port", str(agent)], {"CUDA_VISIBLE_DEVICES": str(gpu)}, cores[gpu]
                )
            )
            for gpu, agent in enumerate(agents)
        )
        yield [GatewayProcess(each.pids[0], each.url, agent) for each, agent in zip(served, agents, strict=True)]


@asynccontextmanager
async def balanced(behind: Sequence[GatewayProcess]) -> AsyncIterator[Fleet]:
    """HAProxy with docker/haproxy.cfg in front of these. Raises GatewayStartError."""
    haproxy = shutil.which("haproxy")
    if haproxy is None:
        raise GatewayStartError("haproxy is not installed")
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
    raise GatewayStartError("the gateway did not start:\n" + "".join(seen[-_REPORT_LINES:]))


async def _discard(lines: asyncio.StreamReader) -> None:
    while await lines.read(65_536):
        pass
