"""Waking the engine: any process that wrote the slots' tables rings, and the engine's loop looks at them again.

vLLM's own way in goes through an event loop, two threads of ZeroMQ, one of vLLM's and a decoder. This one is a socket
that the loop itself waits for, beside what vLLM has for it.
"""

from __future__ import annotations

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
"""Who has just rung may notify again in a moment: so long the engine does not go to sleep, from which it comes slowly."""


class WakeupSender:
    """The end that is pulled; belongs to one thread. `address`: of `EngineConfig.wakeup_address`."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address}"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)

    def notify(self) -> None:
        """Have the engine look at its held generations. Never waits; into the void where no engine listens."""
        # Where the socket is full of rings, it will hear one of those.
        with suppress(OSError):
            self._sock.sendto(b"!", self._address)

    def close(self) -> None:
        """Safe to call twice."""
        self._sock.close()


class WakeupQueue:
    """The queue that vLLM's loop waits at, as far as it uses one: a notify is worth a `word`, many at a time are too.

    Any thread may put something in; one takes it out.
    """

    def __init__(self, address: str, word: Any) -> None:
        self._word = word
        self._waiting: deque[Any] = deque()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wakeup = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._wakeup.bind(f"\0{address}")
        self._wakeup.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._news, select.EPOLLIN)
        self._poll.register(self._wakeup, select.EPOLLIN)
        self._rung_s = -math.inf

    def put_nowait(self, item: Any) -> None:
        self._waiting.append(item)
        os.eventfd_write(self._news, 1)

    def empty(self) -> bool:
        """Rings do not count: whoever asks is about to look at the tables anyhow."""
        return not self._waiting

    def get(self, block: bool = True) -> Any:
        """Raises queue.Empty when there is nothing and it may not wait."""
        while not self._waiting:
            if not block:
                raise queue.Empty
            attentive = time.monotonic() - self._rung_s < SPIN_S
            for descriptor, _ in self._poll.poll(0 if attentive else None):
                if descriptor == self._news:
                    with suppress(BlockingIOError):
                        os.eventfd_read(self._news)
                else:
                    self._hear()
        return self._waiting.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def _hear(self) -> None:
        self._rung_s = time.monotonic()
        with suppress(BlockingIOError):
            while True:
                self._wakeup.recv(1)
        self._waiting.append(self._word)
