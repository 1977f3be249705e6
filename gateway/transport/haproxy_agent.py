"""Tells a balancer how much room there is, in the words of HAProxy's agent-check.

A balancer connects to the agent's own port every second or so and reads one line (HAProxy Configuration Manual,
section 5.2, `agent-check`); no gateway is asked for more than its state of the moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from ..observability.state import GatewayState

_WRITE_S = 1.0


def agent_line(state: GatewayState) -> str:
    """`drain`, `down`, or `ready up` with the weight that is left.

    The weight never falls to 0, which would mean drain: a gateway that is full still has a queue, and when all are
    full somebody has to refuse.
    """
    if state.draining:
        return "drain\n"
    if not state.ready:
        return f"down #voice model {state.engine.value}\n"
    return f"ready up {max(1, math.ceil(100 * (1 - state.load)))}%\n"


class HAProxyAgent:
    """Answers every connection with one line and closes it; sees nothing of what is sent to it."""

    def __init__(self, state: Callable[[], GatewayState]) -> None:
        self._state = state
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int | None:
        """The port in use, None while it does not listen."""
        return self._server.sockets[0].getsockname()[1] if self._server is not None else None

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the address is taken."""
        self._server = await asyncio.start_server(self._answer, host, port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            writer.write(agent_line(self._state()).encode())
            writer.close()
            async with asyncio.timeout(_WRITE_S):
                await writer.wait_closed()
