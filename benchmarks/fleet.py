"""Gateways started for a measurement: one, or one on each GPU behind HAProxy. They end with the measurement."""

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
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from voxgate.gateway.ready_file import GatewayExited, ReadyGateway, wait_until_ready

HAPROXY_CONFIGURATION = Path(__file__).resolve().parents[1] / "docker/haproxy.cfg"
"""Part of a checkout, as this module is; not of the wheel."""
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
HAPROXY_TIMEOUT_S = 10.0
MIN_CORES = 4
"""Cores are divided among gateways only where each gets at least this many."""
_POLL_S = 0.05
_CAPACITY_LINES = 4
_REPORT_LINES = 20


@dataclass(frozen=True, slots=True)
class Fleet:
    """The address that serves a measurement, and the processes behind it, without their children."""

    url: str
    pids: Sequence[int]


class GatewayStartError(Exception):
    """A gateway or the balancer did not start; the text gives the reason."""


@asynccontextmanager
async def one_gateway(
    flags: Sequence[str], environment: Mapping[str, str] | None = None, cores: Collection[int] = ()
) -> AsyncIterator[ReadyGateway]:
    """Runs a gateway in a process of its own, on `cores` alone if any are given. Raises GatewayStartError."""
    with tempfile.TemporaryDirectory(prefix="voxgate-bench-") as folder:
        ready, log = Path(folder) / "ready.json", Path(folder) / "log"
        with log.open("wb") as log_file:
            process = await _start_gateway(ready, log_file, flags, environment or {})
        try:
            if cores:
                # The interpreter is still starting: the gateway has not counted its cores yet.
                os.sched_setaffinity(process.pid, cores)
            try:
                gateway = await wait_until_ready(ready, process, START_TIMEOUT_S)
            except (GatewayExited, TimeoutError) as failure:
                lines = log.read_text("utf-8", errors="replace").splitlines()[-_REPORT_LINES:]
                reason = "timed out" if isinstance(failure, TimeoutError) else str(failure)
                raise GatewayStartError("\n".join([f"the gateway did not start: {reason}", *lines])) from None
            if (line := fast_paths(log.read_text("utf-8", errors="replace"))) is not None:
                _report(line)
            _report(f"capacity: {gateway.capacity} utterances at once at the start")
            yield gateway
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
            # Only now: a gateway can be ready before its log has the line.
            written = log.read_text("utf-8", errors="replace")
            for line in (*measured_capacity(written), *capacity_falls(written)):
                _report(line)


def _report(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


def fast_paths(log: str) -> str | None:
    """What a gateway's log says of the GPU's fast paths; None without a GPU."""
    found = re.search(r"GPU fast paths in use.*", log)
    return None if found is None else found.group()


def measured_capacity(log: str) -> Sequence[str]:
    """What a gateway's log says of its calibration, with the steps from which the capacity follows; empty without."""
    return re.findall(r"capacity: \d+ utterances at once, measured in .*", log)


def capacity_falls(log: str) -> Sequence[str]:
    """The last falls of the predicted capacity in a gateway's log, each with the steps that it follows from."""
    return re.findall(r"capacity: \d+ utterances at once instead of \d+, steps slower: .*", log)[-_CAPACITY_LINES:]


async def _start_gateway(
    ready: Path, log: BinaryIO, flags: Sequence[str], environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", "--ready-file", ready, "--starts-per-s", "1000",
        # Utterances beyond the capacity are to be counted as refused rather than to wait.
        "--queue-wait-ms", "0", *flags,
        stderr=log, env=os.environ | environment,
    )  # fmt: skip  # one argument list


@asynccontextmanager
async def gateways(count: int, flags: Sequence[str]) -> AsyncIterator[Sequence[ReadyGateway]]:
    """Runs `count` gateways, each with a GPU and an equal part of this process's cores. Raises GatewayStartError."""
    cores = divide_cores(sorted(os.sched_getaffinity(0)), count)
    flags = [*flags, "--haproxy-agent-port", "0", "--admin-port", "0"]
    async with AsyncExitStack() as stack:
        yield await _gather(
            stack.enter_async_context(one_gateway(flags, {"CUDA_VISIBLE_DEVICES": str(gpu)}, cores[gpu]))
            for gpu in range(count)
        )


async def _gather(starts: Iterable[Coroutine[None, None, ReadyGateway]]) -> list[ReadyGateway]:
    """Runs `starts` concurrently; when one fails, cancels the others and raises its error."""
    try:
        async with asyncio.TaskGroup() as group:
            starting = [group.create_task(start) for start in starts]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in starting]


@asynccontextmanager
async def balanced(replicas: Sequence[ReadyGateway]) -> AsyncIterator[Fleet]:
    """Runs HAProxy with docker/haproxy.cfg in front of `replicas`. Raises GatewayStartError."""
    haproxy = shutil.which("haproxy")
    if haproxy is None:
        raise GatewayStartError("haproxy is not installed")
    with tempfile.TemporaryDirectory(prefix="voxgate-fleet-") as folder:
        async with balancer(haproxy, replicas, Path(folder)) as front:
            yield Fleet(front.url, [front.pid, *(replica.pid for replica in replicas)])


def divide_cores(cores: Sequence[int], count: int) -> list[Sequence[int]]:
    """Divides `cores` into `count` equal parts; empty ones mean no restriction."""
    size = len(cores) // count
    if size < MIN_CORES:
        return [()] * count
    return [cores[number * size : (number + 1) * size] for number in range(count)]


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Restricts processes that this thread starts in the block to `cores`; no cores, no restriction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# HAProxy


class Balancer:
    """A running HAProxy with process id `pid`: clients connect to `url`, statistics are at `statistics_url`."""

    def __init__(self, pid: int, port: int, statistics_port: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self.url = f"http://127.0.0.1:{port}"
        self.statistics_url = f"http://127.0.0.1:{statistics_port}"

    async def servers(self) -> dict[str, dict[str, str]]:
        """HAProxy's statistics of each replica: g0, g1 and so on."""
        text = await asyncio.to_thread(_get, f"{self.statistics_url}/;csv")
        rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
        return {row["svname"]: row for row in rows if row["pxname"] == "gateways" and row["svname"].startswith("g")}

    async def wait_for_states(self, **states: str) -> None:
        """Waits until each named replica's status begins with the given text. Raises TimeoutError."""
        async with asyncio.timeout(HAPROXY_TIMEOUT_S):
            while True:
                servers = await self.servers()
                if all(servers[name]["status"].startswith(state) for name, state in states.items()):
                    return
                await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def balancer(haproxy: str, replicas: Sequence[ReadyGateway], folder: Path) -> AsyncIterator[Balancer]:
    """Runs HAProxy in front of `replicas`, from when all of them are up; its configuration and log are in `folder`.

    Raises GatewayStartError for an unsuitable configuration, TimeoutError when a replica does not come up, and
    RuntimeError at the end when HAProxy has raised an alert.
    """
    port, statistics_port = free_port(), free_port()
    path, log = folder / "haproxy.cfg", folder / "haproxy.log"
    path.write_text(haproxy_configuration(replicas, port, statistics_port), encoding="utf-8")
    with log.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(haproxy, "-db", "-f", path, stdout=log_file, stderr=PIPE)
    try:
        running = Balancer(process.pid, port, statistics_port, log)
        await _wait_until_listening(statistics_port)
        await running.wait_for_states(**{f"g{number}": "UP" for number in range(len(replicas))})
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        messages = (await process.communicate())[1].decode()
        if "[ALERT]" in messages:
            raise RuntimeError(f"haproxy raised an alert:\n{messages}")


def haproxy_configuration(replicas: Sequence[ReadyGateway], port: int, statistics_port: int) -> str:
    """docker/haproxy.cfg with addresses of this machine and checks five times as often, to shorten waits.

    Raises GatewayStartError when the file lacks a line that has to be replaced.
    """
    text = HAPROXY_CONFIGURATION.read_text("utf-8")
    servers = "\n".join(
        f"    server g{number} 127.0.0.1:{replica.port} port {replica.admin_port or replica.port}"
        f" agent-port {replica.haproxy_agent_port}"
        for number, replica in enumerate(replicas)
    )
    for old, new in {
        r"bind :8080": f"bind 127.0.0.1:{port}",
        r"bind :8404": f"bind 127.0.0.1:{statistics_port}",
        r"check inter 1s": "check inter 200ms",
        r"agent-inter 1s": "agent-inter 200ms",
        r"^ +server-template .*$": servers,
    }.items():
        text, replaced = re.subn(old, new, text, flags=re.MULTILINE)
        if replaced != 1:
            raise GatewayStartError(f"{HAPROXY_CONFIGURATION} must have one line with {old!r}, got {replaced}")
    return text


def free_port() -> int:
    """A port that is free now. Another program can take it before it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HAPROXY_TIMEOUT_S) as answer:
        text: str = answer.read().decode()
        return text


async def _wait_until_listening(port: int) -> None:
    async with asyncio.timeout(HAPROXY_TIMEOUT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(_POLL_S)
            else:
                writer.close()
                return
