"""An event loop with its own time: waiting costs nothing, and every run is the same."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LATE_S = 0.003
"""How late a disorderly loop's timers fire at most."""
STALLS = 0.002
"""How often it then stands still for up to `STALL_S`, as a loop does under a garbage collection or a slow callback."""
STALL_S = 0.3


class Deadlock(RuntimeError):
    """Everybody waits, and no timer is left to end it."""


class _Selector(selectors.SelectSelector):
    """Where a real selector would sleep, time jumps."""

    def __init__(self, disorder: random.Random | None) -> None:
        super().__init__()
        self.now_s = 0.0
        self._disorder = disorder

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing to run and no timer set")
        self.now_s += max(0.0, timeout)
        if self._disorder is not None and self._disorder.random() < STALLS:
            self.now_s += self._disorder.uniform(0, STALL_S)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and moves only when there is nothing else to do.

    With `disorder` timers fire late by a random bit, so in another order, and now and then the loop stands still.
    """

    def __init__(self, disorder: random.Random | None = None) -> None:
        self._disorder = disorder
        self._virtual = _Selector(disorder)
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if self._disorder is not None:
            when += self._disorder.uniform(0, LATE_S)
        return super().call_at(when, callback, *args, context=context)


def run(main: Coroutine[Any, Any, T], disorder: random.Random | None = None) -> T:
    """Run `main` in virtual time. Raises Deadlock when it waits for something that cannot come."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(disorder)) as runner:
        return runner.run(main)
