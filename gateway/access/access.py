"""The door: decides from a request's credential, origin and address who is calling."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ..errors import Forbidden, Unauthorized
from .caller import Caller
from .keys import ApiKey, KeyLimits, KeyRing, utc_now
from .ledger import Ledger
from .origins import origin_allowed
from .tokens import MAX_TTL_S, TokenSigner

_CALLERS_REMEMBERED = 1024


class Access:
    """With keys configured, everyone needs one, or a token made with one; without, every address is a caller."""

    def __init__(
        self,
        ring: KeyRing,
        signer: TokenSigner,
        *,
        defaults: KeyLimits | None = None,
        origins: tuple[str, ...] = (),
        clock: Callable[[], datetime] = utc_now,
        ledger: Ledger | None = None,
    ) -> None:
        self._ring = ring
        self._signer = signer
        self._defaults = defaults or KeyLimits()
        self._origins = origins
        self._clock = clock
        self._ledger = ledger
        self._callers: dict[str, Caller] = {}

    @property
    def keyed(self) -> bool:
        """Keys are configured: nobody comes in without."""
        return len(self._ring) > 0

    def lists(self, origin: str) -> bool:
        """Whether the settings name this origin, or any."""
        return bool(origin) and ("*" in self._origins or origin in self._origins)

    def replace_keys(self, ring: KeyRing) -> None:
        """Other keys from now on; sockets that are open stay open."""
        self._ring = ring

    def admit(self, credential: str | None, origin: str | None, host: str | None, peer: str) -> Caller:
        """Who is calling. `credential`: a key or a token. Raises Forbidden (the origin), Unauthorized."""
        self.check_origin(origin, host)
        return self.identify(credential, peer)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Raises Forbidden."""
        if not origin_allowed(origin, host, self._origins):
            raise Forbidden("this origin is not allowed")

    def identify(self, credential: str | None, peer: str) -> Caller:
        """Who is calling, wherever the request comes from. Raises Unauthorized."""
        if not self.keyed:
            return self._caller(peer, self._defaults)
        key = None if credential is None else self._key(credential)
        if key is None:
            raise Unauthorized("an API key is needed" if not credential else "this API key is not valid")
        return self._caller(key.name, key.limits.over(self._defaults))

    def check_key(self, credential: str | None) -> None:
        """Raises Unauthorized for what a token may not do: it is for speaking, and a browser holds it."""
        if self.keyed and (credential is None or self._ring.find(credential, self._clock()) is None):
            raise Unauthorized("this takes an API key")

    def issue_token(self, credential: str | None, ttl_s: int) -> tuple[str, datetime]:
        """A token in the name of the key, and when it expires.

        Only a key makes tokens: one that a browser holds cannot prolong itself. Raises Unauthorized; ValueError
        for a `ttl_s` outside 1 to MAX_TTL_S.
        """
        if not 1 <= ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s is 1 to {MAX_TTL_S}")
        now = self._clock()
        key = None if credential is None else self._ring.find(credential, now)
        if key is None:
            raise Unauthorized("tokens are made with an API key")
        return self._signer.issue(key.name, ttl_s, now)

    def _key(self, credential: str) -> ApiKey | None:
        now = self._clock()
        if (key := self._ring.find(credential, now)) is not None:
            return key
        name = self._signer.key_name(credential, now)
        return None if name is None else self._ring.named(name, now)

    def _caller(self, name: str, limits: KeyLimits) -> Caller:
        if (caller := self._callers.get(name)) is None:
            if len(self._callers) >= _CALLERS_REMEMBERED and not self.keyed:
                # Addresses are many; those that hold nothing need not be remembered.
                self._callers = {known: other for known, other in self._callers.items() if not other.idle}
            caller = self._callers[name] = Caller(name, limits, keyed=self.keyed, ledger=self._ledger)
        elif caller.limits != limits:
            caller.change(limits)
        return caller
