"""A real gateway with the demo voice, and a client library in another process and environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from compat.clients import ROOT, ClientUnderTest
from voxgate.client import Refused, connect

START_S = 300
SLOTS = 2
SOCKETS = 6


class CompatGateway:
    """`voxgate serve` as a process."""

    def __init__(self, process: Process, port: int, certificate: Path | None) -> None:
        self.process = process
        self.certificate = certificate
        self.url = f"http{'s' if certificate else ''}://localhost:{port}"
        self.tls = ssl.create_default_context(cafile=str(certificate)) if certificate else None
        self._http = httpx.AsyncClient(verify=self.tls or True, trust_env=False, timeout=5)

    async def ready(self) -> bool:
        try:
            return (await self._http.get(f"{self.url}/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def until_ready(self) -> None:
        async with asyncio.timeout(START_S):
            while not await self.ready():
                assert self.process.returncode is None, "the gateway ended"
                await asyncio.sleep(0.2)

    async def utterances(self) -> dict[str, int]:
        """Number of active utterances, and how many there may be."""
        return dict((await self._http.get(f"{self.url}/v1/limits")).json()["utterances"])

    async def until_active(self, count: int, within_s: float) -> None:
        async with asyncio.timeout(within_s):
            while (await self.utterances())["active"] != count:
                await asyncio.sleep(0.05)

    def kill_engine(self) -> None:
        """Kill the process of the talker."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        engines = [each for each in family if "EngineCore" in f"{each.name()} {' '.join(each.cmdline())}"]
        assert engines, [each.cmdline() for each in family]
        for engine in engines:
            engine.kill()

    @asynccontextmanager
    async def hold_talkers(self) -> AsyncIterator[None]:
        """Holds every talker slot with an utterance whose text stays open; a busy machine may have fewer than SLOTS."""
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(connect(self.url, tls=self.tls))
            for held in range(SLOTS):
                if held and held == (await self.utterances())["limit"]:
                    break
                utterance = await stack.enter_async_context(session.utterance())
                await utterance.send("wait ")
                await self.until_active(held + 1, 10)
            yield

    @asynccontextmanager
    async def hold_sockets(self) -> AsyncIterator[None]:
        """Holds every socket."""
        async with AsyncExitStack() as stack:
            for _ in range(SOCKETS):
                try:
                    await stack.enter_async_context(connect(self.url, tls=self.tls))
                except Refused:
                    break
            yield

    async def close(self) -> None:
        await self._http.aclose()
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(40):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()


@dataclass
class DriverProcess:
    """The process of the client; drivers/remote.py defines its answers."""

    process: Process

    async def ask(self, do: str, *, within_s: float = 30, **fields: Any) -> dict[str, Any]:
        """Raises AssertionError when the process itself failed, TimeoutError when it hangs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write((json.dumps({"do": do, "within_s": within_s, **fields}) + "\n").encode())
        async with asyncio.timeout(within_s + 15):
            line = await self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"failed": "the driver ended"}')
        assert "failed" not in answer, answer["failed"]
        return answer

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def gateway(folder: Path, *, tls: bool) -> AsyncIterator[CompatGateway]:
    """Runs a gateway with its log in `folder`. Two slots, a few sockets and no queue make it full soon."""
    certificate = await _certificate(folder) if tls else None
    port = _free_port()
    command = [
        "serve",
        "--port",
        port,
        "--slots",
        SLOTS,
        "--queue-length",
        0,
        "--sockets",
        SOCKETS,
        "--shutdown-grace-s",
        20,
    ]
    if certificate is not None:
        command += ["--tls-certificate", certificate]
    with (folder / "gateway.log").open("wb") as log:
        arguments = [sys.executable, "-m", "voxgate.cli", *map(str, command)]
        process = await asyncio.create_subprocess_exec(*arguments, stdout=log, stderr=log)
    running = CompatGateway(process, port, certificate)
    try:
        await running.until_ready()
        yield running
    finally:
        await running.close()


@asynccontextmanager
async def driver(client: ClientUnderTest, running: CompatGateway, folder: Path) -> AsyncIterator[DriverProcess]:
    """Opens one instance of a client library."""
    # The client must not see this environment, nor a proxy between it and the loopback interface; it sees the packages
    # of this project, for its own services.
    environment = {
        name: value for name, value in os.environ.items() if "PYTHON" not in name and "proxy" not in name.lower()
    }
    environment["PYTHONPATH"] = str(ROOT / "build/links")
    if running.certificate is not None:
        environment["SSL_CERT_FILE"] = str(running.certificate)
    with (folder / "client.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            client.python,
            client.driver,
            running.url,
            *client.arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env=environment,
        )
    its = DriverProcess(process)
    try:
        yield its
    finally:
        await its.close()


def drain(running: CompatGateway) -> None:
    running.process.send_signal(signal.SIGTERM)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def _certificate(folder: Path) -> Path:
    """A self-signed certificate for localhost with its key, in one PEM file."""
    path, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(path)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path
