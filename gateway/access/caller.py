"""One key at work (or, where no keys are configured, one address): what it uses now, against its limits."""

from __future__ import annotations

import math

from ..errors import KeyLimit, RateLimited
from ..rates import TokenBucket
from .keys import KeyLimits
from .ledger import Ledger

_SOCKETS_RETRY_MS = 2000
_UTTERANCES_RETRY_MS = 1000
_MINUTE_S = 60.0


class Caller:
    """Shared by all sockets of one key. Limits that change apply at the next use; what is open stays open.

    With a `ledger`, what is used counts over all processes that share it.
    """

    def __init__(self, name: str, limits: KeyLimits, *, keyed: bool = True, ledger: Ledger | None = None) -> None:
        self.name = name
        self.key = name if keyed else ""
        """The key's name; empty for an address, of which there are too many to count by."""
        self.limits = limits
        self.sockets = 0
        self.utterances = 0
        """Under way, until the engine confirmed their end."""
        self._text = _bucket(limits)
        # Addresses are many, and most have no limit that anybody would count for.
        self._ledger = ledger if keyed or limits.sockets or limits.characters_per_minute else None

    @property
    def idle(self) -> bool:
        return not self.sockets and not self.utterances

    def change(self, limits: KeyLimits) -> None:
        """Other limits from now on."""
        if limits.characters_per_minute != self.limits.characters_per_minute:
            self._text = _bucket(limits)
        self.limits = limits

    def take_socket(self, now_s: float) -> None:
        """One more is to be opened. Raises KeyLimit when every socket of this key is open; nothing is counted then."""
        limit = self.limits.sockets
        if self._ledger is None:
            free = limit is None or self.sockets < limit
        else:
            free = self._ledger.take_caller_socket(self.name, limit, now_s)
        if not free:
            raise KeyLimit(f"this key has at most {limit} sockets", retry_after_ms=_SOCKETS_RETRY_MS)
        self.sockets += 1

    def give_socket(self, now_s: float) -> None:
        """One was closed."""
        self.sockets -= 1
        if self._ledger is not None:
            self._ledger.give_caller_socket(self.name, now_s)

    def check_utterance(self) -> None:
        """Raises KeyLimit when as many utterances are under way as this key may have."""
        if (limit := self.limits.utterances) is not None and self.utterances >= limit:
            message = f"this key has at most {limit} utterances at once"
            raise KeyLimit(message, retry_after_ms=_UTTERANCES_RETRY_MS)

    def spend_text(self, characters: int, now_s: float) -> None:
        """Count text against the minute. Raises RateLimited; nothing is counted then."""
        if self._text is None:
            return
        limit = self.limits.characters_per_minute
        if self._ledger is None:
            wait_s = self._text.take(now_s, characters)
        else:
            assert limit is not None, "there is a bucket"
            wait_s = self._ledger.spend(self.name, characters, limit / _MINUTE_S, limit, now_s)
        if wait_s:
            message = f"this key has {limit} characters a minute"
            raise RateLimited(message, retry_after_ms=math.ceil(wait_s * 1000))


def _bucket(limits: KeyLimits) -> TokenBucket | None:
    if (characters := limits.characters_per_minute) is None:
        return None
    return TokenBucket(characters / _MINUTE_S, burst_s=_MINUTE_S)
