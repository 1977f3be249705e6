"""Rate and abuse policy of one socket: how often a client may send messages, and which errors close its socket."""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

from voxgate.pipeline.errors import BadMessage, VoxgateError

from ..errors import Limit, RateLimited
from ..settings import Settings
from .usage import TokenBucket

_MAX_BAD_MESSAGES = 3
"""Bad messages within the window that close the socket: a working client sends none."""
_MAX_RATE_LIMITED = 20
"""Rate-limited messages within the window that close the socket: a client that backs off stays below."""
_WINDOW_S = 10.0


class RatePolicy:
    """Rates and errors of one socket. Time is an argument."""

    def __init__(self, settings: Settings) -> None:
        self._buckets = {
            "messages": TokenBucket(settings.messages_per_s),
            "starts": TokenBucket(settings.starts_per_s),
            "interrupts": TokenBucket(settings.interrupts_per_s),
        }
        self._bad_messages = Strikes(_MAX_BAD_MESSAGES, _WINDOW_S)
        self._rate_limited = Strikes(_MAX_RATE_LIMITED, _WINDOW_S)

    def take(self, kind: Literal["messages", "starts", "interrupts"], now_s: float) -> None:
        """Counts one message of this kind. Raises RateLimited."""
        if wait_s := self._buckets[kind].take(now_s):
            raise RateLimited(f"too many {kind}", retry_after_ms=math.ceil(wait_s * 1000), reached=Limit(kind))

    def close_reason(self, error: VoxgateError, now_s: float) -> str | None:
        """Counts `error`; returns why the socket is to be closed for it, None when it stays open."""
        if isinstance(error, BadMessage) and self._bad_messages.record(now_s):
            return "repeated bad messages"
        if isinstance(error, RateLimited) and self._rate_limited.record(now_s):
            return "rate limit"
        return None


class Strikes:
    """Counts errors within a sliding window."""

    def __init__(self, limit: int, window_s: float) -> None:
        self._times_s: deque[float] = deque(maxlen=limit)
        self._limit = limit
        self._window_s = window_s

    def record(self, now_s: float) -> bool:
        """Counts one; returns whether `limit` of them fell within the last `window_s`."""
        self._times_s.append(now_s)
        return len(self._times_s) == self._limit and now_s - self._times_s[0] <= self._window_s
