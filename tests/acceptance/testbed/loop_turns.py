"""Measures the turns of the event loop inside a gateway process, in CPU time or in work."""

from __future__ import annotations

import asyncio
import sys
import time
from types import FrameType
from typing import Any

_COUNTED = ("call", "c_call")


class TurnMeter:
    """Measures every turn of the running loop between `start` and `stop`.

    A callback that schedules itself again runs once in each turn, so the time between two of its calls is that of one
    turn, callbacks and input alike. The loop does not sleep meanwhile. Times are CPU times of the loop's thread: what
    other programs take does not count.
    """

    def __init__(self, *, count_calls: bool) -> None:
        """`count_calls`: also counts calls of functions, which slows everything down and spoils the times."""
        self._count_calls = count_calls
        self._turns = 0
        self._longest_s = 0.0
        self._calls = self._most_calls = 0
        self._began_s = 0.0
        self._next: asyncio.Handle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._begin)

    def stop(self) -> dict[str, float]:
        """Returns the number of turns, the longest in milliseconds, and the most calls of functions in one."""
        sys.setprofile(None)
        if self._next is not None:
            self._next.cancel()
        return {"turns": self._turns, "longest_ms": 1000 * self._longest_s, "most_calls": self._most_calls}

    def _begin(self) -> None:
        if self._count_calls:
            sys.setprofile(self._on_call)
        self._began_s = time.thread_time()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now_s = time.thread_time()
        self._turns += 1
        self._longest_s = max(self._longest_s, now_s - self._began_s)
        self._most_calls = max(self._most_calls, self._calls)
        self._began_s, self._calls = now_s, 0
        self._next = self._loop.call_soon(self._turn)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002 - the interpreter's signature
        if event in _COUNTED:
            self._calls += 1
