"""Starts gateways as processes of their own: with the tone synthesizer, or with the demo voice in the real engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from fakes.waiting import DEADLINE_S, until
from voxgate.gateway.ready_file import ReadyGateway, wait_until_ready

VOICE_START_S = 240.0
"""Longest start of the demo voice; the first one on a machine compiles kernels."""
TESTS = Path(__file__).parents[2]


class GatewayProcess:
    """A gateway process that is ready to speak."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log
        self._stats = psutil.Process(process.pid)
        self.ready: ReadyGateway

    @property
    def port(self) -> int:
        return self.ready.port

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    @property
    def log_errors(self) -> list[str]:
        """Lines of the log that a gateway without faults never writes."""
        return [line for line in self.log.splitlines() if "Traceback" in line or " ERROR " in line]

    @property
    def memory_bytes(self) -> int:
        """Anonymous resident memory of the gateway's main process.

        Mapped files are left out: their resident part depends on what else the machine does.
        """
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        return 1024 * int(status.partition("RssAnon:")[2].split()[0])

    @property
    def descriptors(self) -> int:
        return self._stats.num_fds()

    @property
    def cpu_s(self) -> float:
        times = self._stats.cpu_times()
        return float(times.user + times.system)

    @property
    def children(self) -> list[psutil.Process]:
        return self._stats.children(recursive=True)

    def limit_descriptors(self, count: int) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (count, count))

    async def ask(self, do: str, **fields: Any) -> Any:
        """Send a question to a tone gateway (`tone_gateway.py`) and return its answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            return json.loads(await stdout.readline())

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON document of a plain HTTP request."""
        return await asyncio.to_thread(_get, f"http://127.0.0.1:{self.port}{path}")

    async def metrics(self) -> str:
        """The Prometheus text of the public port."""
        return await asyncio.to_thread(_read, f"http://127.0.0.1:{self.port}/metrics")

    async def open_sockets(self) -> int:
        return int((await self.get("/v1/limits"))[1]["sockets"]["open"])

    async def until_state(self, done: Callable[[dict[str, int]], bool], *, tasks: bool = False) -> float:
        """Wait until `done(state)` in a tone gateway. Returns the seconds it took; raises TimeoutError.

        `tasks`: counts the tasks too, which takes part of a turn of the event loop.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        async def reached() -> bool:
            return done(await self.ask("state", tasks=tasks))

        await until(reached)
        return loop.time() - began_s

    async def until_idle(self) -> float:
        """Wait until no speech is open. Returns the seconds it took; raises TimeoutError."""
        return await self.until_state(lambda state: state["speeches"] == 0)

    async def until_no_sockets(self) -> float:
        """Wait until no client socket is open. Returns the seconds it took; raises TimeoutError."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        async def closed() -> bool:
            return await self.open_sockets() == 0

        await until(closed)
        return loop.time() - began_s

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_status(self) -> int:
        """Wait for the end of the process. Raises TimeoutError."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


@asynccontextmanager
async def tone_gateway(
    *, slots: int = 64, talker: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[GatewayProcess]:
    """The real command with the tone synthesizer.

    `talker` holds fields of `fakes.pipeline.tone_synthesizer.ToneScript`, `settings` the flags of `voxgate serve`.
    """
    script = json.dumps({"slots": slots, **(talker or {})})
    command = [sys.executable, "-m", "acceptance.testbed.tone_gateway", script, "--port", "0", *_flags(settings)]
    async with _running(command, DEADLINE_S) as gateway:
        yield gateway


@asynccontextmanager
async def voice_gateway(**settings: Any) -> AsyncIterator[GatewayProcess]:
    """The demo voice in the real engine."""
    command = [sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", *_flags(settings)]
    async with _running(command, VOICE_START_S) as gateway:
        yield gateway


def _flags(settings: dict[str, Any]) -> list[str]:
    """One flag for each setting, or for each value of one that is a list."""
    flags = []
    for name, value in settings.items():
        for each in value if isinstance(value, (list, tuple)) else [value]:
            flags += [f"--{name.replace('_', '-')}", str(each)]
    return flags


@asynccontextmanager
async def _running(command: list[str], start_s: float) -> AsyncIterator[GatewayProcess]:
    with tempfile.TemporaryDirectory(prefix="acceptance-") as folder:
        path, ready_path = Path(folder) / "log", Path(folder) / "ready.json"
        command = [*command, "--ready-file", str(ready_path)]
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=log, env=_environment(), start_new_session=True
            )
        gateway = GatewayProcess(process, path)
        try:
            gateway.ready = await wait_until_ready(ready_path, process, start_s)
            yield gateway
        except BaseException:
            print(f"last lines of the gateway's log:\n{gateway.log[-2000:]}", file=sys.stderr)
            raise
        finally:
            await _end(gateway)


async def _end(gateway: GatewayProcess) -> None:
    """Kill the gateway and every process that it started."""
    children = gateway.children if gateway.process.returncode is None else []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(gateway.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        await gateway.exit_status()
    for child in children:  # those in sessions of their own
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _get(url: str) -> tuple[int, Any]:
    try:
        with _open(url) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"null")


def _read(url: str) -> str:
    with _open(url) as answer:
        return str(answer.read(), "utf-8")


def _open(url: str) -> Any:
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=DEADLINE_S)


def _environment() -> dict[str, str]:
    """This process's environment, with the tests on the import path."""
    paths = filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
