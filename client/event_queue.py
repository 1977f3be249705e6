"""The queue of the events of one utterance."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class EventQueue(Generic[T]):
    """A bounded queue from the session's reader to the reader of one utterance; its end can carry an error."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None

    async def put(self, item: T) -> None:
        """Appends `item`; waits while the queue is full, does nothing once it is closed. Cancelling appends nothing."""
        while len(self._items) >= self._capacity and not self._closed:
            await self._wait_for_change()
        self.append(item)

    def append(self, item: T) -> None:
        """Appends `item` although the queue may be full; does nothing once it is closed."""
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    async def get(self) -> T | None:
        """Returns the next item; None, or the error of `close` raised, after the last. Cancelling loses no item."""
        while not self._items:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            await self._wait_for_change()
        item = self._items.popleft()
        self._changed.set()
        return item

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Removes and returns the items that are `unwanted`."""
        removed = [item for item in self._items if unwanted(item)]
        self._items = deque(item for item in self._items if not unwanted(item))
        self._changed.set()
        return removed

    def put_back(self, items: Sequence[T]) -> None:
        """Inserts items before all others."""
        self._items.extendleft(reversed(items))
        self._changed.set()

    def reopen(self) -> None:
        """Has a queue that was ended without an error go on."""
        if self._error is None:
            self._closed = False

    def close(self, error: Exception | None = None) -> None:
        """Ends the queue after its present items, with `error` if given. Only the first call counts."""
        if not self._closed:
            self._closed = True
            self._error = error
        self._changed.set()

    def discard(self) -> None:
        """Drops the present items and ends the queue."""
        self._items.clear()
        self.close()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
