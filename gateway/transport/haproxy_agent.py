"""Reports the gateway's free capacity to HAProxy's agent check (HAProxy Configuration Manual, section 5.2).

HAProxy connects to the agent's own port every second or so and reads one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from ..observability.state import GatewayState
from ..settings import listening

_WRITE_TIMEOUT_S = 1.0
"""Seconds that a load balancer has to read its line."""


def agent_line(state: GatewayState) -> str:
    """Returns `drain`, `down`, or `ready up` with the free share of the capacity as weight.

    The weight is at least 1 %, because 0 % means drain: a full gateway still has a queue, and when all gateways are
    full one of them has to refuse the request.
    """
    if state.draining:
        return "drain\n"
    if not state.ready:
        return f"down #voice model {state.engine.value}\n"
    return f"ready up {max(1, math.ceil(100 * (1 - state.load)))}%\n"


class HAProxyAgent:
    """Answers every connection with one line and closes it. Ignores what the other side sends."""

    def __init__(self, state: Callable[[], GatewayState]) -> None:
        self._state = state
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int | None:
        """The TCP port in use; None while closed."""
        return self._server.sockets[0].getsockname()[1] if self._server is not None else None

    async def open(self, host: str, port: int) -> None:
        """Listens. Raises SettingsError when the address cannot be used."""
        with listening("haproxy_agent_port", host, port):
            self._server = await asyncio.start_server(self._answer, host, port)

    def close(self) -> None:
        """Stops listening. Safe without `open`."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            writer.write(agent_line(self._state()).encode())
            writer.close()
            try:
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
