"""Two ways to count how often something happens: a token bucket, and strikes within a window."""

from __future__ import annotations

from collections import deque

BURST_S = 5.0
"""A bucket holds this many seconds of its rate: a pasted text or a quick hand passes, a flood does not."""


class TokenBucket:
    """Allows `rate_per_s` in the long run and `burst_s` seconds of it at once."""

    def __init__(self, rate_per_s: float, burst_s: float = BURST_S) -> None:
        self._rate_per_s = rate_per_s
        self._capacity = max(1.0, rate_per_s * burst_s)
        self._tokens = self._capacity
        self._filled_s: float | None = None

    def take(self, now_s: float, tokens: int = 1) -> float:
        """Take tokens. Returns 0.0, or the seconds until they are there, in which case none was taken.

        More than the bucket holds are taken when it is full, and owed: the next take waits for them.
        """
        if self._filled_s is not None:
            self._tokens = min(self._capacity, self._tokens + (now_s - self._filled_s) * self._rate_per_s)
        self._filled_s = now_s
        needed = min(float(tokens), self._capacity)
        if self._tokens >= needed:
            self._tokens -= tokens
            return 0.0
        return (needed - self._tokens) / self._rate_per_s


class Strikes:
    """Counts offences; `strike` says whether `limit` of them fell within the last `window_s`."""

    def __init__(self, limit: int, window_s: float) -> None:
        self._times_s: deque[float] = deque(maxlen=limit)
        self._limit = limit
        self._window_s = window_s

    def strike(self, now_s: float) -> bool:
        self._times_s.append(now_s)
        return len(self._times_s) == self._limit and now_s - self._times_s[0] <= self._window_s
