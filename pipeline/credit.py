"""When frame credit reaches the talker: the speeches of one group get theirs at the same moment."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator

INTERVAL_S = 0.16
"""Interval of the rounds: two frames, short against the audio that is generated ahead of playback."""
GPU_GROUPS = 4
"""Groups of a GPU's speeches, whose rounds are spread over the interval."""


class CreditRounds:
    """Calls grants of credit together, at most every `interval_s` seconds.

    A talker step costs little more for eight generations than for one. If each generation got a frame's credit at its
    own listener's moment, generations would step alone; with credit granted together, they step together.
    """

    def __init__(self, interval_s: float = INTERVAL_S, *, aligned: bool = False, offset_s: float = 0.0) -> None:
        """`aligned`: rounds are `offset_s` after multiples of the interval, at the same moments in all processes."""
        self._interval_s, self._aligned, self._offset_s = interval_s, aligned, offset_s
        self._pending: dict[Callable[[], None], None] = {}
        """In order of arrival, so that a simulation is reproducible."""
        self._last_s = float("-inf")

    def join(self, grant: Callable[[], None]) -> None:
        """Calls `grant` in the next round; once, however often it joined before that."""
        if not self._pending:
            loop = asyncio.get_running_loop()
            loop.call_at(self._next_s(loop.time()), self._run_round)
        self._pending[grant] = None

    def _next_s(self, now_s: float) -> float:
        if self._aligned:
            # The clocks of all event loops of a machine have the same origin.
            return math.ceil((now_s - self._offset_s) / self._interval_s) * self._interval_s + self._offset_s
        return max(self._last_s + self._interval_s, now_s)

    def _run_round(self) -> None:
        self._last_s = asyncio.get_running_loop().time()
        grants, self._pending = self._pending, {}
        for grant in grants:
            grant()


class StaggeredCredit:
    """Assigns speeches to rounds (staggered credit).

    On a CPU, where a step's time is proportional to its generations, all speeches have the same rounds. On a GPU a
    step of all of them would delay an utterance that begins at that moment (300 generations take some 20 ms, a quarter
    of them 12), and the codec's load would be as uneven. So paced speeches take turns in GPU_GROUPS groups. Unpaced
    ones are granted many frames at once, which cost least when all of them step together.
    """

    def __init__(self, device: str, *, aligned: bool = False) -> None:
        """`aligned`: several processes share the talker. On a GPU rounds are aligned in any case."""
        if device == "cpu":
            self._unpaced = CreditRounds(aligned=aligned)
            self._paced: Iterator[CreditRounds] = itertools.repeat(self._unpaced)
        else:
            self._unpaced = CreditRounds(aligned=True)
            apart_s = INTERVAL_S / GPU_GROUPS
            self._paced = itertools.cycle([CreditRounds(aligned=True, offset_s=n * apart_s) for n in range(GPU_GROUPS)])

    def next(self, *, paced: bool) -> CreditRounds:
        """Returns the rounds of the next speech."""
        return next(self._paced) if paced else self._unpaced
