"""A bounded queue between the session's reader and one utterance's listener; its end can carry an error."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """One writer, one reader. `put` waits while full: the session then stops reading its socket.

    `close` ends it behind what is queued; `discard` ends it at once, as an interrupt does.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None

    async def put(self, item: T) -> None:
        """Append `item`; does nothing once closed. Cancelling appends nothing."""
        while len(self._items) >= self._capacity and not self._closed:
            await self._change()
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    async def get(self) -> T | None:
        """The next item, or None after the last; raises what it was closed with. Cancelling loses nothing."""
        while not self._items:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            await self._change()
        item = self._items.popleft()
        self._changed.set()
        return item

    def close(self, error: Exception | None = None) -> None:
        if not self._closed:
            self._closed = True
            self._error = error
        self._changed.set()

    def discard(self) -> None:
        self._items.clear()
        self.close()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
