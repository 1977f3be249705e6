"""The file in which `voxgate serve --ready-file` reports that speech can be requested, for scripts and tests.

    voxgate serve --port 0 --ready-file /run/voxgate.json

It holds one JSON object with the fields of `ReadyGateway`. It appears complete, by a rename, when the voice model has
loaded for the first time. The gateway deletes it when it starts and when it stops. `GET /readyz` reports the current
state.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ReadyGateway:
    """Where a gateway can be reached."""

    url: str
    """HTTP address with the port in use, reachable from the same machine."""
    port: int
    haproxy_agent_port: int | None
    capacity: int
    """Utterances that can be spoken at once."""
    pid: int
    admin_port: int | None = None


class GatewayExited(Exception):
    """The gateway process ended before it was ready."""


@contextmanager
def ready_file(path: Path | None) -> Iterator[None]:
    """Deletes the file at `path`, if any, at both ends of the block, so that it never describes an earlier run.

    Raises OSError where the folder does not exist or cannot be written to.
    """
    if path is None:
        yield
        return
    path.unlink(missing_ok=True)
    _temporary(path).touch()  # fails now rather than after the model has loaded
    try:
        yield
    finally:
        _temporary(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def write_ready_file(path: Path, gateway: ReadyGateway) -> None:
    """Creates or replaces the file in one step. Raises OSError."""
    temporary = _temporary(path)
    temporary.write_text(json.dumps(asdict(gateway)) + "\n", encoding="utf-8")
    temporary.replace(path)


async def wait_until_ready(path: Path, process: asyncio.subprocess.Process, timeout_s: float) -> ReadyGateway:
    """Waits for the ready file of the gateway that runs as `process`.

    Raises GatewayExited when the process ends first, TimeoutError after `timeout_s`. Cancelling it changes nothing.
    """
    async with asyncio.timeout(timeout_s):
        while True:
            if (gateway := _read(path)) is not None:
                return gateway
            if process.returncode is not None:
                raise GatewayExited(f"the gateway exited with status {process.returncode}")
            await asyncio.sleep(_POLL_S)


def _read(path: Path) -> ReadyGateway | None:
    try:
        return ReadyGateway(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")
