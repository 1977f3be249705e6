"""Streaming forced alignment: the cheapest path of a text's states through speech, while both arrive.

Viterbi decoding over left-to-right states (see `scorer.py`), one hop of 20 ms at a time. Words whose time is final are
committed: their states and hops are dropped, so the cost of a frame does not grow with the text. Committing when all
near-optimal paths agree follows short-time Viterbi decoding (Bloit and Rodet, 2008).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scorer import AcousticScorer, Features, StateSequence

MAX_UNCOMMITTED_HOPS = 1500
"""30 s: speech in which no word could be committed for this long does not follow the text; older hops are dropped."""

_STAY, _NEXT, _SKIP = 0, 1, 2
"""Transitions, as the number of states that they advance."""


@dataclass(frozen=True, slots=True)
class AlignmentPath:
    """The state of every hop from `first_hop` on; state numbers never decrease."""

    first_hop: int
    states: list[int]


class ForcedAligner:
    """Aligns one segment of speech with its words, numbered from 0 in the order of `add_word`."""

    def __init__(self, scorer: AcousticScorer, pace: float) -> None:
        self._scorer, self._pace = scorer, pace
        self._word_states: list[tuple[int, int]] = []
        """First state of each word, and the state after its last."""
        self._expected_hops: list[float] = []
        """Expected duration of each word."""
        self._states = scorer.pause_states(punctuated=True)
        """States from number `_first_state` on; those in `_new_states` follow them."""
        self._new_states: list[StateSequence] = []
        self._end_state = 1
        """Number of states appended so far."""
        self._first_state = 0
        """First state that is not committed."""
        self._cost: NDArray[Any] = np.zeros(1)
        """Cost of the cheapest path to each state from `_first_state` on."""
        self._transitions: list[tuple[int, NDArray[np.int8]]] = []
        """Backpointers: for each uncommitted hop, the number of its first state and the transition into each state."""
        self._first_hop = 0
        """First hop that is not committed."""
        self._started = False
        self._paths: tuple[AlignmentPath, AlignmentPath, AlignmentPath] | None = None
        """Cached result of `_margin_paths`."""

    @property
    def words(self) -> int:
        """Number of words added."""
        return len(self._word_states)

    def add_word(self, text: str, *, before: str = "", punctuated: bool) -> None:
        """Append a word; `punctuated` if a mark at its end asks for a pause."""
        self._word_states.append((self._end_state, self._end_state))
        self._expected_hops.append(0.0)
        self._append_word(text, before, punctuated=punctuated)

    def extend_word(self, text: str, *, punctuated: bool) -> None:
        """Append more characters of the last word. The pause after its first part stays possible inside the word."""
        self._append_word(text, "", punctuated=punctuated)

    def _append_word(self, text: str, before: str, *, punctuated: bool) -> None:
        word = self._scorer.word_states(text, before, self._pace)
        self._append(word)
        self._word_states[-1] = self._word_states[-1][0], self._end_state
        self._expected_hops[-1] += float(word.expected_hops.sum())
        self._append(self._scorer.pause_states(punctuated=punctuated))

    def _append(self, states: StateSequence) -> None:
        self._new_states.append(states)
        self._end_state += len(states)

    def push(self, features: Features) -> int:
        """Advance all paths over the next features; returns the number of their hops."""
        if self._new_states:
            self._states, self._new_states = _joined([self._states, *self._new_states]), []
        count = min(self._end_state - self._first_state, self._scorer.beam_states)
        cost = np.full(count, np.inf)
        cost[: len(self._cost)] = self._cost[:count]
        emission_costs = self._scorer.costs(features, self._states.emissions[:count])
        self_loop_cost = self._states.self_loop_cost[:count]
        exit_cost = self._states.exit_cost[:count]
        skip_cost = self._states.skip_cost[:count]
        candidates = np.full((3, count), np.inf)
        for emission_cost in emission_costs:
            if not self._started:
                # A path starts in the leading pause, or in the first state of the first word if there is no silence.
                cost[:] = np.inf
                cost[:2] = emission_cost[:2]
                transition = np.zeros(count, np.int8)
                self._started = True
            else:
                exited = cost + exit_cost
                candidates[_STAY] = cost + self_loop_cost
                candidates[_NEXT, 1:] = exited[:-1]
                candidates[_SKIP, 2:] = exited[:-2] + skip_cost[1:-1]
                transition = candidates.argmin(axis=0).astype(np.int8)
                cost = candidates.min(axis=0) + emission_cost
            self._transitions.append((self._first_state, transition))
        self._cost = cost
        self._paths = None
        if (excess := len(self._transitions) - MAX_UNCOMMITTED_HOPS) > 0:
            del self._transitions[:excess]
            self._first_hop += excess
        return len(emission_costs)

    def path(self, last_word: int | None = None) -> AlignmentPath | None:
        """The cheapest path so far; with `last_word`, the cheapest one that ends right after that word.

        None when there is none.
        """
        if not self._transitions:
            return None
        if last_word is None:
            return self._margin_paths()[0]
        # The path ends in the last state of the word or in the pause after it.
        end = self._word_states[last_word][1]
        costs = self._cost[max(0, end - 1 - self._first_state) : end + 1 - self._first_state]
        if not len(costs) or not np.isfinite(costs).any():
            return None
        return self._trace_back(max(end - 1, self._first_state) + int(np.argmin(costs)))

    def span(self, word: int, path: AlignmentPath) -> tuple[int, int] | None:
        """First hop of a word on `path` and the hop after its last; None if the path ends inside the word or before."""
        begin, end = self._word_states[word]
        first, after = bisect_left(path.states, begin), bisect_left(path.states, end)
        if after == len(path.states):
            return None
        return path.first_hop + first, path.first_hop + after

    def committed_span(self, word: int) -> tuple[int, int] | None:
        """The word's `span` on the cheapest path once the scorer's commit policy declares it final, None before."""
        if not self._transitions:
            return None
        best, behind, ahead = self._margin_paths()
        span, policy = self.span(word, best), self._scorer.commit_policy
        if span is None:
            return None
        hops_since = self._first_hop + len(self._transitions) - span[1]
        if hops_since < policy.min_hops:
            return None
        if hops_since <= policy.max_hops:
            # Paths never cross, so all paths within the margin lie between the hindmost and the foremost one.
            late, early = self.span(word, behind), self.span(word, ahead)
            if late is None or early is None or late[0] - early[0] > 1 or late[1] - early[1] > 1:
                return None
        return span

    def commit(self, word: int, hop: int) -> None:
        """Fix the end of `word` at `hop`, and drop all states and hops before it."""
        end = self._word_states[word][1]
        self._cost = self._cost[end - self._first_state :]
        self._states = _joined([self._states, *self._new_states], end - self._first_state)
        self._new_states = []
        self._first_state = end
        del self._transitions[: hop - self._first_hop]
        self._first_hop = hop

    def expected_hops(self, word: int) -> float:
        """Expected duration of a word."""
        return self._expected_hops[word]

    def _margin_paths(self) -> tuple[AlignmentPath, AlignmentPath, AlignmentPath]:
        """The cheapest path, and the hindmost and the foremost one whose costs lie within the commit margin."""
        if self._paths is None:
            best = int(np.argmin(self._cost))
            near = np.flatnonzero(self._cost <= self._cost[best] + self._scorer.commit_policy.cost_margin)
            cheapest = self._trace_back(self._first_state + best)
            behind, ahead = (
                cheapest if state == best else self._trace_back(self._first_state + int(state))
                for state in (near[0], near[-1])
            )
            self._paths = cheapest, behind, ahead
        return self._paths

    def _trace_back(self, state: int) -> AlignmentPath:
        """The cheapest path that ends in `state`."""
        states = []
        for first_state, transition in reversed(self._transitions):
            states.append(state)
            state -= int(transition[state - first_state])
        return AlignmentPath(self._first_hop, states[::-1])


def _joined(parts: list[StateSequence], first: int = 0) -> StateSequence:
    """The parts concatenated, from state `first` on."""
    columns = (np.concatenate([getattr(part, field.name) for part in parts])[first:] for field in fields(StateSequence))
    return StateSequence(*columns)
