"""Gateways as processes of their own: with the tone talker, or with the demo voice in the real engine."""
# TODO-DOC How a process that is started from here finds these packages.

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from voxgate.cli.ready_file import ReadyGateway, wait_until_ready

TONE_READY_S = 30.0
VOICE_READY_S = 240.0
GONE_S = 15.0


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
    def complaints(self) -> list[str]:
        """Lines of the log that nobody should ever see."""
        return [line for line in self.log.splitlines() if "Traceback" in line or " ERROR " in line]

    @property
    def memory_bytes(self) -> int:
        """What the gateway's own process has taken and touched.

        Pages of the programs and libraries that it maps come and go with what else the machine does.
        """
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        return 1024 * int(status.partition("RssAnon:")[2].split()[0])

    @property
    def descriptors(self) -> int:
        return self._stats.num_fds()

    @property
    def cpu_s(self) -> float:
        times = self._stats.cpu_times()
        return times.user + times.system

    @property
    def family(self) -> list[psutil.Process]:
        return self._stats.children(recursive=True)

    def limit_descriptors(self, count: int) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (count, count))

    async def ask(self, do: str, **fields: Any) -> Any:
        """A question to a tone gateway (`tone_serve.py`)."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        async with asyncio.timeout(30):
            return json.loads(await stdout.readline())

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and document of a plain HTTP request."""
        return await asyncio.to_thread(_get, f"http://127.0.0.1:{self.port}{path}")

    async def until(self, done, timeout_s: float) -> float:
        """Ask for the state until `done(state)`; returns the seconds it took. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(timeout_s):
            while not done(await self.ask("state")):
                await asyncio.sleep(0.01)
        return loop.time() - began_s

    async def until_idle(self, timeout_s: float = 30) -> float:
        """Until no speech is open."""
        return await self.until(lambda state: state["speeches"] == 0, timeout_s)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def gone(self, timeout_s: float = GONE_S) -> int:
        """Wait for its end; returns the exit status."""
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()


@asynccontextmanager
async def tone_gateway(
    *, slots: int = 64, talker: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[GatewayProcess]:
    """The real command with the tone talker; `talker` are fields of `fakes.tone.ToneScript`, `settings` the gateway's."""
    words = {"slots": slots, **(talker or {})}
    command = [
        sys.executable,
        "-m",
        "acceptance.testbed.tone_gateway",
        json.dumps(words),
        "--port",
        "0",
        *_flags(settings),
    ]
    async with _running(command, TONE_READY_S) as served:
        yield served


@asynccontextmanager
async def voice_gateway(**settings: Any) -> AsyncIterator[GatewayProcess]:
    """The demo voice in the real engine."""
    command = [sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", *_flags(settings)]
    async with _running(command, VOICE_READY_S) as served:
        yield served


def _flags(settings: dict[str, Any]) -> list[str]:
    """A flag is given once for each value of a list."""
    flags = []
    for name, value in settings.items():
        for each in value if isinstance(value, (list, tuple)) else [value]:
            flags += [f"--{name.replace('_', '-')}", str(each)]
    return flags


@asynccontextmanager
async def _running(command: list[str], ready_s: float) -> AsyncIterator[GatewayProcess]:
    with tempfile.TemporaryDirectory(prefix="scorecard-") as folder:
        path, ready_path = Path(folder) / "log", Path(folder) / "ready.json"
        command = [*command, "--ready-file", str(ready_path)]
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=log, env=environment()
            )
        served = GatewayProcess(process, path)
        try:
            served.ready = await wait_until_ready(ready_path, process, ready_s)
            yield served
        except BaseException:
            print(f"the gateway's last lines:\n{served.log[-2000:]}", file=sys.stderr)
            raise
        finally:
            await _end(served)


async def _end(served: GatewayProcess) -> None:
    """Leave no process of it behind."""
    family = served.family if served.process.returncode is None else []
    if served.process.returncode is None:
        served.process.kill()
    with contextlib.suppress(TimeoutError):
        await served.gone()
    for child in psutil.wait_procs(family, timeout=3)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _get(url: str) -> tuple[int, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"null")


TESTS = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """This one's: with a path on which pytest and scripts/scorecard, each in its own way, have put the tests here."""
    paths = filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
