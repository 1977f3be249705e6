"""When frame credit reaches the talker: for all speeches at the same moments."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator

INTERVAL_S = 0.16
GPU_GROUPS = 4
"""Rounds that a GPU's speeches take turns in."""


class CreditRounds:
    """Collects what wants to grant credit and lets all of it do so together, at most every `interval_s` seconds.

    A talker step costs little more for eight generations than for one. Granted one frame at a time, each at its own
    listener's moment, generations would step alone; granted together they step together. The interval is short against
    the time that generation runs ahead.

    `aligned`: several processes share one talker, and rounds are at the same moments in all of them, `offset_s` after
    the multiples of the interval.
    """

    def __init__(self, interval_s: float = INTERVAL_S, *, aligned: bool = False, offset_s: float = 0.0) -> None:
        self._interval_s, self._aligned, self._offset_s = interval_s, aligned, offset_s
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
            return math.ceil((now_s - self._offset_s) / self._interval_s) * self._interval_s + self._offset_s
        return max(self._last_s + self._interval_s, now_s)

    def _round(self) -> None:
        self._last_s = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        for grant in waiting:
            grant()


class StaggeredCredit:
    """Which rounds one speech after another is to join.

    On a CPU, where a step's time goes with its generations, all of them the same. On a GPU all at once would be in the
    way of whoever begins then: some 20 ms of steps for 300, where a quarter of them takes 12, and what the codec gets
    to do at a time is as uneven. So those that are listened to take turns. Those that are not want many frames at a
    time, which cost least when all of them step together.

    The moments are the machine's, so they are the same in all processes.
    """

    def __init__(self, device: str, *, aligned: bool = False) -> None:
        if device == "cpu":
            self._unpaced = CreditRounds(aligned=aligned)
            self._paced: Iterator[CreditRounds] = itertools.repeat(self._unpaced)
        else:
            self._unpaced = CreditRounds(aligned=True)
            apart_s = INTERVAL_S / GPU_GROUPS
            self._paced = itertools.cycle([CreditRounds(aligned=True, offset_s=n * apart_s) for n in range(GPU_GROUPS)])

    def next(self, *, paced: bool) -> CreditRounds:
        """The next speech's."""
        return next(self._paced) if paced else self._unpaced
