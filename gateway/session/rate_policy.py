"""How a client may behave: rates of messages, and how many offences end the session."""
# TODO-DOC Two ways to count how often something happens: a token bucket, and strikes within a window.

from __future__ import annotations

import math
from collections import deque

from voxgate.pipeline.errors import BadMessage, VoxgateError

from ..access.usage import TokenBucket
from ..errors import RateLimited
from ..settings import Settings

_BAD_MESSAGES = 3
_RATE_REFUSALS = 20
_WINDOW_S = 10.0


class RatePolicy:
    """One socket's rates and offences; time comes in as an argument."""

    def __init__(self, settings: Settings) -> None:
        self._buckets = {
            "messages": TokenBucket(settings.messages_per_s),
            "starts": TokenBucket(settings.starts_per_s),
            "interrupts": TokenBucket(settings.interrupts_per_s),
        }
        self._bad_messages = Strikes(_BAD_MESSAGES, _WINDOW_S)
        self._refusals = Strikes(_RATE_REFUSALS, _WINDOW_S)

    def count(self, what: str, now_s: float) -> None:
        """One more of "messages", "starts" or "interrupts". Raises RateLimited."""
        if wait_s := self._buckets[what].take(now_s):
            raise RateLimited(f"too many {what}", retry_after_ms=math.ceil(wait_s * 1000))

    def close_reason(self, error: VoxgateError, now_s: float) -> str | None:
        """Why this error, after those before it, ends the session; None when it does not."""
        if isinstance(error, BadMessage) and self._bad_messages.strike(now_s):
            return "repeated bad messages"
        if isinstance(error, RateLimited) and self._refusals.strike(now_s):
            return "rate limit"
        return None


"""A bucket holds this many seconds of its rate: a pasted text or a quick hand passes, a flood does not."""


class Strikes:
    """Counts offences; `strike` says whether `limit` of them fell within the last `window_s`."""

    def __init__(self, limit: int, window_s: float) -> None:
        self._times_s: deque[float] = deque(maxlen=limit)
        self._limit = limit
        self._window_s = window_s

    def strike(self, now_s: float) -> bool:
        self._times_s.append(now_s)
        return len(self._times_s) == self._limit and now_s - self._times_s[0] <= self._window_s
