"""A target connection without a network, with scripted messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
from voxgate.loadtest.targets.connection import TargetRefused

LOUD = (np.ones(1920) * 8000).astype("<i2").tobytes()
SILENT = bytes(3840)


class FakeConnection:
    """Yields `messages` (pause in seconds, samples); the first pause counts from the first text."""

    rate_hz = 24_000
    queue_ms: float | None = 3.0
    server_ms: float | None = 2.0

    def __init__(self, messages: list[tuple[float, bytes]], *, refuse: str | None = None) -> None:
        self.text: list[str] = []
        self.ended = self.closed = self.aborted = False
        self.interrupted_ms: int | None = None
        self._messages, self._refuse = messages, refuse
        self._first = asyncio.Event()
        self._stopped = asyncio.Event()

    async def send(self, text: str) -> None:
        self.text.append(text)
        self._first.set()

    async def end(self) -> None:
        self.ended = True

    async def interrupt(self, played_ms: int) -> None:
        self.interrupted_ms = played_ms
        self._stopped.set()

    async def audio(self) -> AsyncIterator[bytes]:
        await self._first.wait()
        for pause_s, pcm in self._messages:
            await asyncio.sleep(pause_s)
            if self.aborted:
                raise ConnectionResetError
            if self._stopped.is_set():
                return
            yield pcm
        if self._refuse:
            raise TargetRefused(self._refuse)

    async def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    async def stall(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
