"""When frame credit reaches the talker: for all speeches at the same moments."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

INTERVAL_S = 0.16


class CreditRounds:
    """Collects what wants to grant credit and lets all of it do so together, at most every `interval_s` seconds.

    A talker step costs little more for eight sessions than for one. Granted one frame at a time, each at its own
    listener's moment, sessions would step alone; granted together they step together. The interval is short against
    the time that generation runs ahead.

    `aligned`: several processes share one talker, and rounds are at the same moments in all of them.
    """

    def __init__(self, interval_s: float = INTERVAL_S, *, aligned: bool = False) -> None:
        self._interval_s, self._aligned = interval_s, aligned
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order of joining, so that a simulation comes out the same every time."""
        self._last_s = float("-inf")

    def join(self, grant: Callable[[], None]) -> None:
        """Have `grant` called in the next round; once, however often it joined."""
        if not self._waiting:
            loop = asyncio.get_running_loop()
            loop.call_at(self._next_s(loop.time()), self._round)
        self._waiting[grant] = None

    def _next_s(self, now_s: float) -> float:
        if self._aligned:
            # The clock of every event loop of a machine counts from the same moment.
            return math.ceil(now_s / self._interval_s) * self._interval_s
        return max(self._last_s + self._interval_s, now_s)

    def _round(self) -> None:
        self._last_s = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        for grant in waiting:
            grant()
