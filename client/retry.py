"""When to try again to reach a gateway."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ClientError, Refused


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses that double, spread at random so that the listeners of a restarted gateway do not come back at once."""

    patience_s: float = 30
    """Give up when the next try would come later than this after the first."""
    first_pause_s: float = 0.25
    longest_pause_s: float = 8

    def pause_s(self, failure: ClientError, tries: int, elapsed_s: float, chance: float) -> float | None:
        """How long to wait after try number `tries` (from 1) failed; None to give up.

        `chance` in [0, 1) spreads the pause from half to one and a half. A gateway that said when to come back is
        not asked before.
        """
        if not failure.retryable:
            return None
        pause = min(self.first_pause_s * 2.0 ** min(tries - 1, 30), self.longest_pause_s) * (0.5 + chance)
        if isinstance(failure, Refused) and failure.retry_after_ms is not None:
            pause = max(pause, failure.retry_after_ms / 1000)
        return pause if elapsed_s + pause <= self.patience_s else None


NEVER = Retry(patience_s=0)
"""The first failure is raised."""
