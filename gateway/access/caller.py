"""Callers (an API key, or an address where keys are not configured) with their use and limits, and their grants."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from datetime import datetime

from ..errors import SOCKETS_RETRY_MS, UTTERANCES_RETRY_MS, Forbidden, KeyLimit, Limit, RateLimited
from ..messages.connection import Quota
from .keys import KeyLimits
from .rights import Requirement, Right
from .usage import SharedUsage, TokenBucket

_IPV6_PREFIX_BITS = 64
"""A host is usually given a whole /64 network, so that it could otherwise be any number of callers."""


def caller_name(key: str | None, address: str) -> str:
    """The name under which use is counted: of the key, or without one of the client's `address`.

    An IPv6 address becomes its /64 network, an IPv4-mapped one the IPv4 address. What is no IP address is kept.
    """
    if key is not None:
        return key
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), _IPV6_PREFIX_BITS), strict=False))


_MINUTE_S = 60.0


class Caller:
    """One key, or one address where keys are not configured, with its use and limits; shared by all its sockets.

    Changed limits apply at the next use; open sockets stay open. With a `shared_usage`, use counts over all processes.
    """

    def __init__(
        self, name: str, limits: KeyLimits, *, has_key: bool = True, shared_usage: SharedUsage | None = None
    ) -> None:
        self.name = name
        self.key = name if has_key else ""
        """Name of the key in metrics; empty for an address, because there are too many."""
        self.limits = limits
        self.sockets = 0
        self.utterances = 0
        """Active utterances, until the engine confirmed their end."""
        self._text = _bucket(limits)
        self._shared_usage = shared_usage

    @property
    def unused(self) -> bool:
        return not self.sockets and not self.utterances

    def set_limits(self, limits: KeyLimits) -> None:
        """Replaces the limits."""
        if limits.characters_per_minute != self.limits.characters_per_minute:
            self._text = _bucket(limits)
        self.limits = limits

    def acquire_socket(self, now_s: float) -> None:
        """Counts one more socket. Raises KeyLimit, and counts nothing, when the limit is reached."""
        limit = self.limits.sockets
        if self._shared_usage is None:
            free = limit is None or self.sockets < limit
        else:
            free = self._shared_usage.acquire_caller_socket(self.name, limit, now_s)
        if not free:
            message = f"this key may have at most {limit} open sockets"
            raise KeyLimit(message, retry_after_ms=SOCKETS_RETRY_MS, reached=Limit.KEY_SOCKETS)
        self.sockets += 1

    def release_socket(self, now_s: float) -> None:
        """Counts one socket less."""
        self.sockets -= 1
        if self._shared_usage is not None:
            self._shared_usage.release_caller_socket(self.name, now_s)

    def open_sockets(self, now_s: float) -> int:
        """Open sockets in all processes."""
        if self._shared_usage is None:
            return self.sockets
        return self._shared_usage.caller_sockets(self.name, now_s)

    def check_utterance(self) -> None:
        """Raises KeyLimit when this key has as many active utterances as its limit."""
        if (limit := self.limits.utterances) is not None and self.utterances >= limit:
            message = f"this key may have at most {limit} active utterances"
            raise KeyLimit(message, retry_after_ms=UTTERANCES_RETRY_MS, reached=Limit.KEY_UTTERANCES)

    def charge_text(self, characters: int, now_s: float) -> None:
        """Charges text to the limit per minute. Raises RateLimited, and charges nothing, when it is exceeded."""
        if self._text is None:
            return
        limit = self.limits.characters_per_minute
        if self._shared_usage is None:
            wait_s = self._text.take(now_s, characters)
        else:
            assert limit is not None
            wait_s = self._shared_usage.take_tokens(self.name, characters, limit / _MINUTE_S, limit, now_s)
        if wait_s:
            message = f"this key may send at most {limit} characters a minute"
            raise RateLimited(message, retry_after_ms=math.ceil(wait_s * 1000), reached=Limit.KEY_CHARACTERS)

    def quota(self, now_s: float) -> Quota:
        """Returns the limits, and what is left of them in all processes."""
        limits, left = self.limits, None
        if (characters := limits.characters_per_minute) is not None:
            if self._shared_usage is not None:
                available = self._shared_usage.available_tokens(self.name, characters / _MINUTE_S, characters, now_s)
            else:
                assert self._text is not None
                available = self._text.available(now_s)
            left = max(0, int(available))
        return Quota(
            sockets=limits.sockets,
            sockets_left=None if limits.sockets is None else max(0, limits.sockets - self.open_sockets(now_s)),
            utterances=limits.utterances,
            characters_per_minute=characters,
            characters_left=left,
        )


def _bucket(limits: KeyLimits) -> TokenBucket | None:
    if (characters := limits.characters_per_minute) is None:
        return None
    return TokenBucket(characters / _MINUTE_S, burst_s=_MINUTE_S)


@dataclass(frozen=True, slots=True)
class Grant:
    """The result of an authentication: as which caller a client acts, with which rights, and until when.

    The limits and the expiry of a key can change while its sockets are open, so the key itself is asked for them.
    """

    caller: Caller
    rights: frozenset[Right]
    key_hash: str | None = None
    """Hash of the key that was presented, or that issued the token; None where keys are not configured."""
    token_expires: datetime | None = None
    """When the token expires; None for a key."""

    @property
    def key(self) -> str | None:
        """Name of the key; None where keys are not configured."""
        return None if self.key_hash is None else self.caller.name

    def check(self, requirement: Requirement) -> None:
        """Raises Forbidden when the requirement is not met."""
        by_token = self.token_expires is not None
        if by_token and requirement.key_only:
            raise Forbidden("this requires an API key instead of a token")
        if not self.rights & requirement.one_of:
            rights = " or ".join(sorted(requirement.one_of))
            if self.key_hash is None:
                raise Forbidden(f"clients without an API key have no right {rights!r} on this gateway")
            raise Forbidden(f"this {'token' if by_token else 'API key'} lacks the right {rights!r}")
