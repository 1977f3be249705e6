"""Wakes the engine: a process that wrote the slot tables notifies the engine's loop, which then reads them again.

vLLM's own way into its loop passes an event loop, two threads of ZeroMQ, one of vLLM's and a decoder. This one is a
socket that the loop itself waits for, together with its queue of requests; or it wakes at a moment of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import queue
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .peer_credentials import is_same_user

SPIN_S = 0.002
"""Seconds after a notification in which the loop polls instead of sleeping: another is likely, and waking is slow."""
SELECT_DESCRIPTORS = 1024
"""Descriptors from this number on are too large for `select`, which waits to the microsecond; epoll rounds up to a
millisecond."""
BACKLOG = 128
"""Connections that may wait to be accepted: more than a gateway has processes."""
MAX_EVENTS = 16
"""Connections that are served before the loop goes on."""
MAX_NOTIFICATIONS = 4096
"""Notifications of one process that are read before the loop goes on."""

log = logging.getLogger(__name__)


class WakeupSender:
    """A writer's end; belongs to one thread. `address`: of the engine's `WakeupQueue`.

    It connects with its first notification, and connects again after a restart of the engine.
    """

    def __init__(self, address: str) -> None:
        self._address = f"\0{address}"
        self._sock: socket.socket | None = None
        self._pending = False
        self._closed = False

    def notify(self) -> None:
        """Wakes the engine. Never waits; does nothing where no engine listens."""
        self._pending = False
        if not self._send() and not self._closed:
            self._connect()
            self._send()

    def _send(self) -> bool:
        """Returns False where there is no connection, or it is lost."""
        if self._sock is None:
            return False
        try:
            self._sock.send(b"!")
        except BlockingIOError:
            pass  # A full socket holds earlier notifications, which serve as well.
        except OSError:
            self._sock.close()
            self._sock = None
            return False
        return True

    def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            sock.connect(self._address)
        except OSError:
            sock.close()
        else:
            self._sock = sock

    def notify_soon(self) -> None:
        """Wakes the engine at the end of this turn of the event loop: once for all writes of the turn."""
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._notify_pending)

    def _notify_pending(self) -> None:
        if self._pending:
            self.notify()

    def close(self) -> None:
        """Safe to call twice; `notify` does nothing afterwards."""
        self._closed = True
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class WakeupListener:
    """The engine's end: accepts connections of this user's processes at `address`, and reads their notifications.

    `fileno` is readable while there is something to read. What one call of `read` does is bounded, so that no process
    can occupy the engine's loop. Raises OSError when the address is in use.
    """

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(f"\0{address}")
        except OSError:
            self._listener.close()
            raise
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._senders: dict[int, socket.socket] = {}
        self._refused = False
        """Whether a process of another user was refused."""
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)

    def fileno(self) -> int:
        return -1 if self._poll.closed else self._poll.fileno()  # as a socket

    def read(self) -> bool:
        """Accepts what connects and reads what was sent; returns whether a notification was among it. Never waits."""
        notified = False
        for descriptor, _ in self._poll.poll(0, MAX_EVENTS):
            if descriptor == self._listener.fileno():
                notified |= self._accept()
            else:
                notified |= self._receive(descriptor)
        return notified

    def close(self) -> None:
        """Safe to call twice."""
        for sock in (self._listener, *self._senders.values()):
            sock.close()
        self._senders.clear()
        self._poll.close()

    def _accept(self) -> bool:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return False
        try:
            known = is_same_user(sock)
        except OSError:
            known = False
        if not known:
            if not self._refused:  # once, because another user could write the log full
                log.warning("wake-up connection refused: its process belongs to another user")
            self._refused = True
            sock.close()
            return False
        sock.setblocking(False)
        self._senders[sock.fileno()] = sock
        self._poll.register(sock, select.EPOLLIN)
        return self._receive(sock.fileno())

    def _receive(self, descriptor: int) -> bool:
        try:
            received = self._senders[descriptor].recv(MAX_NOTIFICATIONS)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if not received:
            self._poll.unregister(descriptor)
            self._senders.pop(descriptor).close()
        return bool(received)


class WakeupQueue:
    """Replaces the `queue.Queue` that vLLM's loop waits for; has the methods of it that vLLM calls.

    One or more notifications since the last `get` count as one item, `wakeup_item`. Any thread may put items in; one
    takes them out. `address`: the abstract socket that `WakeupSender` connects to. `wake_s`: asked by `get` for the
    moment, of the monotonic clock, at which it returns `wakeup_item` in any case.
    """

    def __init__(self, address: str, wakeup_item: Any, wake_s: Callable[[], float] = lambda: math.inf) -> None:
        self._wakeup_item, self._wake_s = wakeup_item, wake_s
        self._items: deque[Any] = deque()
        self._item_event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._listener = WakeupListener(address)
        self._poll = select.epoll()
        self._poll.register(self._item_event, select.EPOLLIN)
        self._poll.register(self._listener, select.EPOLLIN)
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
            now_s, wake_s = time.monotonic(), self._wake_s()
            if now_s >= wake_s:
                return self._wakeup_item
            sleep_s = 0.0 if now_s - self._notified_s < SPIN_S else wake_s - now_s
            if self._look(sleep_s if sleep_s < math.inf else None):
                self._items.append(self._wakeup_item)
        return self._items.popleft()

    def wait(self, seconds: float) -> bool:
        """Waits `seconds`, or until a notification, and returns True; returns False as soon as there is an item."""
        end_s = time.monotonic() + seconds
        while not self._items:
            if self._look(max(0.0, end_s - time.monotonic())) or time.monotonic() >= end_s:
                return True
        return False

    def _look(self, seconds: float | None) -> bool:
        """Waits for something to read, at most `seconds`, and reads it; returns whether it was a notification."""
        notified = False
        if self._poll.fileno() < SELECT_DESCRIPTORS:
            select.select([self._poll], [], [], seconds)
            seconds = 0.0
        for descriptor, _ in self._poll.poll(seconds):
            if descriptor == self._item_event:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._item_event)
            elif self._listener.read():
                self._notified_s, notified = time.monotonic(), True
        return notified

    def get_nowait(self) -> Any:
        """`get` without waiting."""
        return self.get(block=False)
