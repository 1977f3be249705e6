"""How long the engine's steps take, told from the two moments a scheduler sees of each: its order and its outcome."""

from __future__ import annotations

from collections import deque


class StepClock:
    """A step counts from its order or, when the engine did not rest since, from the outcome of the one before it.

    So it holds for engines that order a step while the one before it runs, and what the engine does between two steps
    counts too. Outcomes come in the order of the orders; some orders, of nothing, have none.
    """

    def __init__(self) -> None:
        self._ordered: deque[tuple[int, float]] = deque()
        self._outcome_s: float | None = None
        """Of the step before, unless the engine rested since."""
        self._last_s = 0.0

    def order(self, step: object, now_s: float) -> None:
        self._ordered.append((id(step), now_s))

    def rest(self) -> None:
        """The engine has nothing to do."""
        self._outcome_s = None

    def outcome(self, step: object, now_s: float) -> float:
        """How long the step took, in seconds."""
        began_s = now_s
        while self._ordered:
            ordered, ordered_s = self._ordered.popleft()
            if ordered == id(step):
                began_s = max(ordered_s, self._last_s) if self._outcome_s is None else self._outcome_s
                break
        self._outcome_s = self._last_s = now_s
        return now_s - began_s
