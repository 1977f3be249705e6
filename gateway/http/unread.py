"""How long a client of plain HTTP may leave its answers unread."""

from __future__ import annotations

import asyncio
from typing import cast

from ..unsent import keep_little_unsent

UNREAD_S = 60.0
"""The server's library would wait for ever."""
LEFT_BYTES = 1
"""More than this in our own buffer is noticed. Were a rest let pass, a closed connection would stay for its sake."""


class UnreadLimit(asyncio.Protocol):
    """Stands between a transport and `protocol`, which sees nothing of it; cuts a client that takes nothing."""

    def __init__(self, protocol: asyncio.Protocol, limit_s: float = UNREAD_S) -> None:
        self._protocol, self._limit_s = protocol, limit_s
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_little_unsent(transport)
        self._transport.set_write_buffer_limits(LEFT_BYTES)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self._limit_s, self._transport.abort)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._calm()
        self._protocol.resume_writing()

    def _calm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
