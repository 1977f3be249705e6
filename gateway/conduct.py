"""How a client may behave: rates of messages, and how many offences end the session."""

from __future__ import annotations

import math

from ..pipeline.errors import BadMessage, VoxgateError
from .errors import RateLimited
from .rates import Strikes, TokenBucket
from .settings import Settings

_BAD_MESSAGES = 3
_RATE_REFUSALS = 20
_WINDOW_S = 10.0


class Conduct:
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

    def verdict(self, error: VoxgateError, now_s: float) -> str | None:
        """Why this error, after those before it, ends the session; None when it does not."""
        if isinstance(error, BadMessage) and self._bad_messages.strike(now_s):
            return "repeated bad messages"
        if isinstance(error, RateLimited) and self._refusals.strike(now_s):
            return "rate limit"
        return None
