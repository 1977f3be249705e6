"""A WebSocket without a network; the client's side consists of methods."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from fakes.waiting import until
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.transport.connection import SocketClosed


class FakeSocket:
    """Satisfies `voxgate.gateway.transport.connection.Socket`.

    `stop_reading` blocks writes as full network buffers do. With `buffered` it accepts every write, as the kernel does
    for a long time, and only probes stay unanswered.
    """

    def __init__(self) -> None:
        self.sent: list[str | bytes] = []
        self.messages: list[dict[str, Any]] = []
        """Control messages received so far."""
        self.times_s: list[float] = []
        self.close_code: int | None = None
        self._incoming: deque[str | bytes] = deque()
        self._arrived = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self._closed = False
        self._silent = False
        self._buffers = False
        self._unread: list[Callable[[], None]] = []

    # The gateway's side

    async def receive(self) -> str | bytes:
        while not self._incoming:
            if self._closed or self._silent:
                raise SocketClosed
            self._arrived.clear()
            await self._arrived.wait()
        return self._incoming.popleft()

    def send(self, message: str | bytes) -> None:
        if self._closed:
            raise SocketClosed
        self.sent.append(message)
        if isinstance(message, str):
            self.messages.append(json.loads(message))
        self.times_s.append(asyncio.get_running_loop().time())
        self._arrived.set()

    @property
    def blocked(self) -> bool:
        return not self._reads.is_set() and not self._buffers

    async def wait_writable(self) -> None:
        await self._reads.wait()

    def probe(self, on_read: Callable[[], None]) -> None:
        self._unread.append(on_read)
        self._answer()

    def _answer(self) -> None:
        if self._reads.is_set():
            for on_read in self._unread:
                asyncio.get_running_loop().call_soon(on_read)
            self._unread.clear()

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:  # noqa: ARG002 - the interface's signature
        self.close_code = code
        self.disconnect()

    # The client's side

    def put(self, **fields: Any) -> None:
        self.put_raw(json.dumps(fields))

    def put_raw(self, message: str | bytes) -> None:
        self._incoming.append(message)
        self._arrived.set()

    def stop_reading(self, *, buffered: bool = False) -> None:
        self._buffers = buffered
        self._reads.clear()

    def read_again(self) -> None:
        self._reads.set()
        self._answer()

    def half_close(self) -> None:
        """End the client's stream; the client still reads."""
        self._silent = True
        self._arrived.set()

    def disconnect(self) -> None:
        self._closed = True
        self._arrived.set()
        self._reads.set()

    @property
    def closed(self) -> bool:
        return self._closed

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m.get("type") == kind]

    def audio(self, number: int = 1) -> list[tuple[AudioHeader, bytes]]:
        parts = [AudioHeader.unpack(m) for m in self.sent if isinstance(m, bytes)]
        return [part for part in parts if part[0].number == number]

    async def until(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Return the `count`th message of type `kind` once it has come. Raises TimeoutError."""
        return await self.when(lambda message: message.get("type") == kind, count)

    async def when(self, wanted: Callable[[dict[str, Any]], bool], count: int = 1) -> dict[str, Any]:
        """Return the `count`th control message that is `wanted` once it has come. Raises TimeoutError."""
        found = await until(lambda: [m for m in self.messages if wanted(m)][count - 1 :])
        return found[0]

    async def hung_up(self) -> int:
        """Return the code the gateway closed with, once it has. Raises TimeoutError."""
        await until(lambda: self.close_code is not None)
        assert self.close_code is not None
        return self.close_code
