"""Follows a text through its speech: the cheapest path of what is expected through what is heard, as both arrive.

The text is a row of steps, each of which may last for moments of 20 ms or be left out, at a cost. What a step sounds
like, and how unlike that a moment is, only the `AcousticScorer` knows. What is certain is forgotten, which bounds the work: a
frame costs the same at the end of a long text as at its beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scorer import AcousticScorer, Features, StateSequence

MAX_UNCOMMITTED_HOPS = 1500
"""Sound of 30 s without a word that is certain follows no text: what is older is not looked at again."""

_STAY, _NEXT, _SKIP = 0, 1, 2


@dataclass(frozen=True, slots=True)
class AlignmentPath:
    """The step of every moment from `first_moment` on; never falls."""

    first_moment: int
    steps: list[int]


class ForcedAligner:
    """The path of one segment. Words are numbered from 0 in the order of `add_word`."""

    def __init__(self, ear: AcousticScorer, pace: float) -> None:
        self._ear, self._pace = ear, pace
        self._spans: list[tuple[int, int]] = []
        """First step of each word, and the step after its last."""
        self._expected: list[float] = []
        """Moments each word was expected to take."""
        self._steps = ear.pause(asked=True)
        """Those from number `_from` on that were looked at, and then those that are new."""
        self._new: list[StateSequence] = []
        self._end = 1
        self._from = 0
        """The first step still in question."""
        self._cost: NDArray[Any] = np.zeros(1)
        self._moves: list[tuple[int, NDArray[np.int8]]] = []
        """For each moment in question: the first step of its row, and how each step was reached."""
        self._first_moment = 0
        self._begun = False
        self._paths: tuple[AlignmentPath, AlignmentPath, AlignmentPath] | None = None
        """The cheapest, and of those that are hardly dearer the one furthest behind and the one furthest ahead."""

    def add_word(self, text: str, *, before: str = "", pauses: bool) -> None:
        """Append a word; `pauses` when its punctuation asks for a pause behind it."""
        self._spans.append((self._end, self._end))
        self._expected.append(0.0)
        self._extend(text, before, pauses=pauses)

    def extend_word(self, text: str, *, pauses: bool) -> None:
        """More of the last word has come. The pause that might have been behind it stays possible inside."""
        self._extend(text, "", pauses=pauses)

    def _extend(self, text: str, before: str, *, pauses: bool) -> None:
        word = self._ear.word(text, before, self._pace)
        self._append(word)
        self._spans[-1] = self._spans[-1][0], self._end
        self._expected[-1] += float(word.moments.sum())
        self._append(self._ear.pause(asked=pauses))

    def _append(self, steps: StateSequence) -> None:
        self._new.append(steps)
        self._end += len(steps)

    def hear(self, heard: Features) -> int:
        """Take in what the ear heard; returns how many moments that is."""
        if self._new:
            self._steps, self._new = _joined([self._steps, *self._new]), []
        count = min(self._end - self._from, self._ear.reach_steps)
        cost = np.full(count, np.inf)
        cost[: len(self._cost)] = self._cost[:count]
        costs = self._ear.costs(heard, self._steps.sounds[:count])
        stay, leave, skip_cost = (part[:count] for part in (self._steps.stay, self._steps.leave, self._steps.skip_cost))
        ways = np.full((3, count), np.inf)
        for moment in costs:
            if not self._begun:
                # The first moment is the first step, or the first word's own if there is no silence ahead of it.
                cost[:] = np.inf
                cost[:2] = moment[:2]
                move = np.zeros(count, np.int8)
                self._begun = True
            else:
                left = cost + leave
                ways[_STAY] = cost + stay
                ways[_NEXT, 1:] = left[:-1]
                ways[_SKIP, 2:] = left[:-2] + skip_cost[1:-1]
                move = ways.argmin(axis=0).astype(np.int8)
                cost = ways.min(axis=0) + moment
            self._moves.append((self._from, move))
        self._cost = cost
        self._paths = None
        if (excess := len(self._moves) - MAX_UNCOMMITTED_HOPS) > 0:
            del self._moves[:excess]
            self._first_moment += excess
        return len(costs)

    @property
    def words(self) -> int:
        return len(self._spans)

    def path(self, last_word: int | None = None) -> AlignmentPath | None:
        """The cheapest path so far, or with `last_word` the cheapest that has spoken it; None when there is none."""
        if not self._moves:
            return None
        if last_word is None:
            return self._all_paths()[0]
        # Its own last step, or the pause behind it.
        end = self._spans[last_word][1]
        costs = self._cost[max(0, end - 1 - self._from) : end + 1 - self._from]
        if not len(costs) or not np.isfinite(costs).any():
            return None
        return self._traced(max(end - 1, self._from) + int(np.argmin(costs)))

    def certain(self, word: int) -> tuple[int, int] | None:
        """As `span` on the cheapest path, once nothing that comes is likely to change it."""
        if not self._moves:
            return None
        best, behind, ahead = self._all_paths()
        span, commit_policy = self.span(word, best), self._ear.commit_policy
        if span is None:
            return None
        waited = self._first_moment + len(self._moves) - span[1]
        if waited < commit_policy.min_hops:
            return None
        if waited <= commit_policy.max_hops:
            # Paths never cross: the two ends of the crowd speak for all between them.
            late, early = self.span(word, behind), self.span(word, ahead)
            if late is None or early is None or late[0] - early[0] > 1 or late[1] - early[1] > 1:
                return None
        return span

    def span(self, word: int, path: AlignmentPath) -> tuple[int, int] | None:
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
        self._steps = _joined([self._steps, *self._new], begin - self._from)
        self._new = []
        self._from = begin
        del self._moves[: moment - self._first_moment]
        self._first_moment = moment

    def expected_hops(self, word: int) -> float:
        """How long the word was expected to take."""
        return self._expected[word]

    def _all_paths(self) -> tuple[AlignmentPath, AlignmentPath, AlignmentPath]:
        if self._paths is None:
            best = int(np.argmin(self._cost))
            near = np.flatnonzero(self._cost <= self._cost[best] + self._ear.commit_policy.cost_margin)
            cheapest = self._traced(self._from + best)
            behind, ahead = (
                cheapest if step == best else self._traced(self._from + int(step)) for step in (near[0], near[-1])
            )
            self._paths = cheapest, behind, ahead
        return self._paths

    def _traced(self, step: int) -> AlignmentPath:
        """The cheapest path to a step."""
        steps = []
        for begin, move in reversed(self._moves):
            steps.append(step)
            step -= int(move[step - begin])
        return AlignmentPath(self._first_moment, steps[::-1])


def _joined(parts: list[StateSequence], first: int = 0) -> StateSequence:
    """All of them in a row, from step `first` on."""
    columns = (np.concatenate([getattr(part, field.name) for part in parts])[first:] for field in fields(StateSequence))
    return StateSequence(*columns)
