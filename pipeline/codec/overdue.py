"""Whether a worker's answer is overdue."""

from __future__ import annotations

HELD_UP_S = 0.1
"""A look so late tells of this process, not of the worker."""

SLOWEST_JOBS = 4
"""What is slow does not hang: two jobs may lie before the one that is waited for, and each take longer than ever."""


class Overdue:
    """Synchronous; time comes in as an argument. `limit_s`: how long a worker with a job may be silent."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard_s = 0.0
        """When the worker was last heard, or got its first job after a rest."""
        self._due_s = self._from_s = 0.0

    def heard(self, now_s: float) -> None:
        """It has answered, or begins after a rest."""
        self._heard_s = now_s

    def due_s(self, slowest_s: float) -> float:
        """When to look whether it `hangs`; `slowest_s` is what one job can take."""
        self._from_s = self._heard_s
        self._due_s = self._from_s + self._limit_s + SLOWEST_JOBS * slowest_s
        return self._due_s

    def hangs(self, now_s: float) -> bool:
        """Whether nothing came since `due_s` was asked, although a job is under way."""
        if now_s - self._due_s > HELD_UP_S:
            # Stopped or held up ourselves, we may not have read what was answered long ago.
            self._heard_s = now_s
        return self._heard_s <= self._from_s
