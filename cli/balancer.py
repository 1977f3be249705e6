"""The real HAProxy, with the configuration that ships, in front of replicas on this machine."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import socket
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
