"""The text of the metrics, made at most once a second however many ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

MAX_AGE_S = 1.0
"""Age up to which a text is given again. Prometheus asks every few seconds."""


class CachedExposition:
    """Gives the text that `make` returns. Requests that come while it is made, or soon after, share it.

    An error is given to those who waited for it and is not kept.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: asyncio.Task[bytes] | None = None
        self._made_s = 0.0
        self._text: bytes | None = None

    async def __call__(self) -> bytes:
        """The text, at most MAX_AGE_S old. Raises what `make` raises. Cancelling it affects no other request."""
        loop = asyncio.get_running_loop()
        if self._text is not None and loop.time() - self._made_s < MAX_AGE_S:
            return self._text
        if self._making is None:
            self._making = loop.create_task(self._refresh(), name="metrics")
            self._making.add_done_callback(self._on_made)
        return await asyncio.shield(self._making)

    async def _refresh(self) -> bytes:
        self._text = await self._make()
        self._made_s = asyncio.get_running_loop().time()
        return self._text

    def _on_made(self, task: asyncio.Task[bytes]) -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: every request may have been cancelled
