"""Wakes the engine: a process that wrote the slot tables notifies the engine's loop, which then reads them again.

vLLM's own way into its loop passes an event loop, two threads of ZeroMQ, one of vLLM's and a decoder. This one is a
socket that the loop itself waits for, together with its queue of requests.
"""

from __future__ import annotations

import asyncio
import math
import os
import queue
import select
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any

SPIN_S = 0.002
"""Seconds after a notification in which the loop polls instead of sleeping: another is likely, and waking is slow."""


class WakeupSender:
    """A writer's end; belongs to one thread. `address`: of the engine's `WakeupQueue`."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address}"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)
        self._pending = False

    def notify(self) -> None:
        """Wakes the engine. Never waits; does nothing where no engine listens."""
        self._pending = False
        # A full socket holds an earlier notification that serves as well.
        with suppress(OSError):
            self._sock.sendto(b"!", self._address)

    def notify_soon(self) -> None:
        """Wakes the engine at the end of this turn of the event loop: once for all writes of the turn."""
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._notify_pending)

    def _notify_pending(self) -> None:
        if self._pending:
            self.notify()

    def close(self) -> None:
        """Safe to call twice."""
        self._sock.close()


class WakeupQueue:
    """Replaces the `queue.Queue` that vLLM's loop waits for; has the methods of it that vLLM calls.

    One or more notifications since the last `get` count as one item, `wakeup_item`. Any thread may put items in; one
    takes them out. `address`: the abstract socket that `WakeupSender` sends to.
    """

    def __init__(self, address: str, wakeup_item: Any) -> None:
        self._wakeup_item = wakeup_item
        self._items: deque[Any] = deque()
        self._item_event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(f"\0{address}")
        self._sock.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._item_event, select.EPOLLIN)
        self._poll.register(self._sock, select.EPOLLIN)
        self._notified_s = -math.inf

    def put_nowait(self, item: Any) -> None:
        self._items.append(item)
        os.eventfd_write(self._item_event, 1)

    def empty(self) -> bool:
        """Whether there are no items; notifications do not count, since the loop reads the tables next anyway."""
        return not self._items

    def get(self, block: bool = True) -> Any:
        """The next item. Raises queue.Empty when there is none and `block` is False."""
        while not self._items:
            if not block:
                raise queue.Empty
            spinning = time.monotonic() - self._notified_s < SPIN_S
            for descriptor, _ in self._poll.poll(0 if spinning else None):
                if descriptor == self._item_event:
                    with suppress(BlockingIOError):
                        os.eventfd_read(self._item_event)
                else:
                    self._on_notification()
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """`get` without waiting."""
        return self.get(block=False)

    def _on_notification(self) -> None:
        self._notified_s = time.monotonic()
        with suppress(BlockingIOError):
            while True:
                self._sock.recv(1)
        self._items.append(self._wakeup_item)
