"""Whether an engine still answers."""

from __future__ import annotations

import math


class HeartbeatWatchdog:
    """Asked again and again: `hangs`, then `asks`. Synchronous; time comes in as an argument.

    Silence alone is no sign: an engine with nothing to do says nothing. So it is asked, and what counts is the time
    since the first question that it has said nothing after.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._asked_s: float | None = None
        self._looked_s = math.inf
        self._spoke = False
        """It has said something since the last look."""

    def asks(self, now_s: float) -> bool:
        """Whether the engine is to be asked for a sign of life now: not while it gives signs, or a question is open."""
        spoke, self._spoke = self._spoke, False
        if spoke or self._asked_s is not None:
            return False
        self._asked_s = now_s
        return True

    def heard(self) -> None:
        """It said something, whatever it was."""
        self._asked_s, self._spoke = None, True

    def hangs(self, now_s: float, slowest_s: float) -> bool:
        """Whether it was silent too long; `slowest_s` is what it may have to do before it can answer."""
        held_up, self._looked_s = now_s - self._looked_s >= self._limit_s, now_s
        if held_up and self._asked_s is not None:
            # We have not looked for so long ourselves, and may not have read what it said.
            self._asked_s = now_s
        return self._asked_s is not None and now_s - self._asked_s >= self._limit_s + slowest_s
