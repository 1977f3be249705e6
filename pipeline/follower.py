"""Follows the expected sounds of a text through its audio: the cheapest path, found as both arrive.

The text is a row of steps, each 20 ms of one sound, so that staying or skipping bends its time to the speaker's. What
is certain is forgotten, which bounds the work: a frame costs the same at the end of a long text as at its beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .sounds import MOMENT_MS, Part, Sound

STAY_COST = 1.45
"""Of a moment longer than expected, and of one shorter."""
SKIP_COST = 1.1
PAUSE_COST = 0.06
"""Of a moment of pause at a punctuation mark or before the first word."""
UNASKED_PAUSE_COST = 0.5
"""Likewise between words that nothing parts."""
NO_PAUSE_COST = 8.0
"""Of speaking on over a punctuation mark."""
REACH_STEPS = 800
"""How far ahead of what is certain the speech may be: 16 s of it."""
LONGEST_MOMENTS = 1500
"""Sound of 30 s without a word that is certain follows no text: what is older is not looked at again."""

_STAY, _NEXT, _SKIP = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Path:
    """The step of every moment from `first_moment` on; never falls."""

    first_moment: int
    steps: list[int]


class Follower:
    """The path of one segment. Words are numbered from 0 in the order of `add_word`."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._sounds: list[int] = [Sound.PAUSE]
        self._stay: list[float] = [PAUSE_COST]
        self._leave_out: list[float] = [0.0]
        self._table: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None = None
        """The three above as arrays, until another step is appended."""
        self._spans: list[tuple[int, int]] = []
        """First step of each word, and the step after its last."""
        self._from = 0
        """The first step still in question."""
        self._cost: NDArray[np.float64] = np.zeros(1)
        self._moves: list[tuple[int, NDArray[np.int8]]] = []
        """For each moment in question: the first step of its row, and how each step was reached."""
        self._first_moment = 0
        self._begun = False

    def add_word(self, parts: list[Part], pauses: bool) -> None:
        """Append a word; `pauses` when its punctuation asks for a pause behind it."""
        self._spans.append((len(self._sounds), len(self._sounds)))
        self.extend_word(parts or [Part(Sound.ANY, MOMENT_MS)], pauses)

    def extend_word(self, parts: list[Part], pauses: bool) -> None:
        """More of the last word has come. The pause that might have been behind it stays possible inside."""
        for part in parts:
            for _ in range(max(1, round(part.ms * self._pace / MOMENT_MS))):
                self._append(part.sound, STAY_COST, SKIP_COST)
        self._spans[-1] = self._spans[-1][0], len(self._sounds)
        self._append(Sound.PAUSE, PAUSE_COST if pauses else UNASKED_PAUSE_COST, NO_PAUSE_COST if pauses else 0.0)

    def _append(self, sound: Sound, stay: float, leave_out: float) -> None:
        self._sounds.append(sound)
        self._stay.append(stay)
        self._leave_out.append(leave_out)
        self._table = None

    def hear(self, costs: NDArray[np.float64]) -> None:
        """Take in moments: the cost of each `Sound` in each, float64 [m, 6]."""
        begin, end = self._from, min(len(self._sounds), self._from + REACH_STEPS)
        cost = np.full(end - begin, np.inf)
        cost[: len(self._cost)] = self._cost[: len(cost)]
        if self._table is None:
            self._table = np.array(self._sounds), np.array(self._stay), np.array(self._leave_out)
        sounds, stay, leave_out = (steps[begin:end] for steps in self._table)
        ways = np.full((3, len(cost)), np.inf)
        for moment in costs:
            if not self._begun:
                # The first moment is the first step, or the first word's own if there is no silence ahead of it.
                cost[:] = np.inf
                cost[:2] = moment[sounds[:2]]
                move = np.zeros(len(cost), np.int8)
                self._begun = True
            else:
                ways[_STAY] = cost + stay
                ways[_NEXT, 1:] = cost[:-1]
                ways[_SKIP, 2:] = cost[:-2] + leave_out[1:-1]
                move = ways.argmin(axis=0).astype(np.int8)
                cost = ways.min(axis=0) + moment[sounds]
            self._moves.append((begin, move))
        self._cost = cost
        if (excess := len(self._moves) - LONGEST_MOMENTS) > 0:
            del self._moves[:excess]
            self._first_moment += excess

    @property
    def words(self) -> int:
        return len(self._spans)

    def path(self, last_word: int | None = None) -> Path | None:
        """The cheapest path so far, or with `last_word` the cheapest that has spoken it; None when there is none."""
        if not self._moves:
            return None
        if last_word is None:
            step = self._from + int(np.argmin(self._cost))
        else:
            # Its own last step, or the pause behind it.
            end = self._spans[last_word][1]
            costs = self._cost[max(0, end - 1 - self._from) : end + 1 - self._from]
            if not len(costs) or not np.isfinite(costs).any():
                return None
            step = max(end - 1, self._from) + int(np.argmin(costs))
        steps = []
        for begin, move in reversed(self._moves):
            steps.append(step)
            step -= int(move[step - begin])
        return Path(self._first_moment, steps[::-1])

    def span(self, word: int, path: Path) -> tuple[int, int] | None:
        """First moment of a word and the one after its last; None while the path has not left it."""
        begin, end = self._spans[word]
        first, after = bisect_left(path.steps, begin), bisect_left(path.steps, end)
        if after == len(path.steps):
            return None
        return path.first_moment + first, path.first_moment + after

    def settle(self, word: int, moment: int) -> None:
        """The word has ended at `moment`: look no more at other ways to get there."""
        begin = self._spans[word][1]
        self._cost = self._cost[begin - self._from :]
        self._from = begin
        del self._moves[: moment - self._first_moment]
        self._first_moment = moment

    def steps(self, word: int) -> int:
        """Moments the word was expected to take."""
        begin, end = self._spans[word]
        return end - begin
