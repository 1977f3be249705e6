"""When frame credit reaches the talker: for all speeches at the same moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL_S = 0.16


class CreditRounds:
    """Collects what wants to grant credit and lets all of it do so together, at most every `interval_s` seconds.

    A talker step costs little more for eight sessions than for one. Granted one frame at a time, each at its own
    listener's moment, sessions would step alone; granted together they step together. The interval is short against
    the time that generation runs ahead.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._waiting: dict[Callable[[], None], None] = {}
        """In the order of joining, so that a simulation comes out the same every time."""
        self._last_s = float("-inf")

    def join(self, grant: Callable[[], None]) -> None:
        """Have `grant` called in the next round; once, however often it joined."""
        if not self._waiting:
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._last_s + self._interval_s, loop.time()), self._round)
        self._waiting[grant] = None

    def _round(self) -> None:
        self._last_s = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        for grant in waiting:
            grant()
