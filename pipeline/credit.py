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

    A talker step costs little more for eight sessions than for one. Granted one frame at a time, each at its own
    listener's moment, sessions would step alone; granted together they step together. The interval is short against
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


def rounds_in_turn(device: str, *, aligned: bool = False) -> Iterator[CreditRounds]:
    """For one speech after another, the rounds that it is to join.

    On a CPU, where a step's time goes with its sessions, all of them in the same. On a GPU all at once would be in the
    way of whoever begins then: some 20 ms of steps for 300, where a quarter of them takes 12, and what the codec gets
    to do at a time is as uneven. The moments are the machine's, so they are the same in all processes.
    """
    if device == "cpu":
        return itertools.repeat(CreditRounds(aligned=aligned))
    apart_s = INTERVAL_S / GPU_GROUPS
    return itertools.cycle([CreditRounds(aligned=True, offset_s=n * apart_s) for n in range(GPU_GROUPS)])
