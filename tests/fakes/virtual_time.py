"""An event loop with its own clock: waiting takes no real time, and every run is the same."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LATE_S = 0.003
"""Largest delay of a timer in a disorderly loop, seconds."""
STALL_PROBABILITY = 0.002
"""Share of the turns in which a disorderly loop stalls, as under a garbage collection or a slow callback."""
STALL_S = 0.3
"""Longest stall, seconds."""
SETTLE_S = 1e-6
"""Above the resolution of asyncio's clock (1 ns), below every time that a test looks at."""


MAX_TURNS = 1_000_000
"""Turns in a row that may take no time; the busiest test needs a tenth of them."""


class Deadlock(RuntimeError):
    """Every task waits, and no timer is left to wake one."""


class Livelock(RuntimeError):
    """Callbacks and timers that are due keep the loop busy, and time stands still."""


class _Selector(selectors.SelectSelector):
    """Advances the time where a real selector would sleep."""

    def __init__(self, disorder: random.Random | None) -> None:
        super().__init__()
        self.now_s = 0.0
        self._disorder = disorder
        self._settled_s = 0.0
        self._turns = 0
        """Turns since the time was `_settled_s`, give or take the resolution of asyncio's clock."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing to run and no timer set")
        self.now_s += max(0.0, timeout)
        self._turns += 1
        if self.now_s > self._settled_s + SETTLE_S:
            self._settled_s, self._turns = self.now_s, 0
        elif self._turns > MAX_TURNS:
            raise Livelock(f"{MAX_TURNS} turns of the event loop took no time")
        if self._disorder is not None and self._disorder.random() < STALL_PROBABILITY:
            self.now_s += self._disorder.uniform(0, STALL_S)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and moves only when no callback is ready.

    With `disorder` each timer fires late by a random time, which changes the order of timers, and sometimes the loop
    stalls.
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
    """Run `main` in virtual time and return its result. Raises Deadlock when it waits for what can never happen."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(disorder)) as runner:
        return runner.run(main)


async def settle() -> None:
    """Let every task run until it waits; virtual time moves on by `SETTLE_S`."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "only virtual time stands still meanwhile"
    await asyncio.sleep(SETTLE_S)


async def turns(count: int) -> None:
    """Let the loop turn `count` times: for tests that interfere at an arbitrary moment. To wait, use `settle`."""
    for _ in range(count):
        await asyncio.sleep(0)
