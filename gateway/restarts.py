"""How long to wait before a lost engine is started again."""

from __future__ import annotations

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
LONG_LIFE_S = 300.0
"""Who has lived so long has not died of how it was started."""


class Restarts:
    """The first restart comes at once; further ones within `LONG_LIFE_S` after ever longer pauses.

    Whatever kills the engine again and again, a client's request among it, so gets at most one start a minute. Time
    comes in as an argument.
    """

    def __init__(self) -> None:
        self.count = 0
        """Losses, and starts that failed, without a long life between them."""
        self._ready_s: float | None = None

    def ready(self, now_s: float) -> None:
        """The engine is up."""
        self._ready_s = now_s

    def lost(self, now_s: float) -> float:
        """It was lost, or did not come up; returns the pause before the next start, in seconds."""
        if self._ready_s is not None and now_s - self._ready_s >= LONG_LIFE_S:
            self.count = 0
        self._ready_s = None
        self.count += 1
        return 0.0 if self.count == 1 else min(FIRST_PAUSE_S * 2.0 ** (self.count - 2), LONGEST_PAUSE_S)
