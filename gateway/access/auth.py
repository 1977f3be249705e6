"""Authentication: the credential, origin and address of a request decide which caller it belongs to."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from ..errors import Forbidden, Unauthorized
from ..settings import Settings, SettingsError
from .caller import Caller, caller_name
from .keys import ApiKey, KeyLimits, KeyRing, KeysError, load_keys, utc_now
from .proxies import TrustedProxies
from .tokens import MAX_TTL_S, TokenSigner
from .usage import SharedUsage

_SCHEMES = ("bearer", "token")
QUERY_CREDENTIALS = ("token", "authorization")
"""Query parameters that may hold a credential."""


def find_credential(headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
    """The first credential found in a request; `headers` are looked up whatever their case.

    `Authorization: Bearer` or `Token`, then `xi-api-key`; a browser cannot set headers on a WebSocket, so also
    `Sec-WebSocket-Protocol: token, KEY` and `token` or `authorization` of the query.
    """
    return (
        _from_authorization(headers.get("Authorization"))
        or (headers.get("xi-api-key") or "").strip()
        or _from_subprotocols(headers.get("Sec-WebSocket-Protocol"))
        or query.get("token")
        or _from_authorization(query.get("authorization"))
        or query.get("authorization")
        or None
    )


def _from_authorization(header: str | None) -> str | None:
    """RFC 6750, section 2.1."""
    scheme, _, credential = (header or "").strip().partition(" ")
    return credential.strip() or None if scheme.lower() in _SCHEMES else None


def _from_subprotocols(header: str | None) -> str | None:
    scheme, _, credential = (header or "").partition(",")
    return credential.strip() or None if scheme.strip().lower() in _SCHEMES else None


def origin_and_host(origins: Sequence[str], hosts: Sequence[str]) -> tuple[str | None, str | None]:
    """Origin and host of a request from all its headers: several origins never match, several hosts count as none."""
    return ",".join(origins) if origins else None, hosts[0] if len(hosts) == 1 else None


def origin_allowed(origin: str | None, host: str | None, allowed: tuple[str, ...]) -> bool:
    """Whether a page of `origin` may use the gateway at `host` (the Host header).

    Requests without an Origin do not come from a browser and are allowed. The gateway's own page is allowed if it was
    opened by IP address or as localhost, which a foreign name that resolves to this host (DNS rebinding) is not. Other
    origins must be listed.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    if host is None:
        return False
    try:
        page = urlsplit(origin)
        own = urlsplit(f"//{host}")
        same = (page.hostname, page.port or _port(page.scheme)) == (
            own.hostname,
            own.port or _port(page.scheme),
        )
    except ValueError:
        return False
    plain = page.scheme in ("http", "https") and page.username is None and not page.path
    return plain and same and page.hostname is not None and _is_address(page.hostname)


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_address(hostname: str) -> bool:
    if hostname == "localhost":
        return True
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True


_MAX_ADDRESSES = 1024
"""Callers without keys that are kept before unused ones are dropped."""


class AccessControl:
    """Identifies callers: by API key or token where keys are configured, otherwise by address."""

    def __init__(
        self,
        ring: KeyRing,
        signer: TokenSigner,
        *,
        defaults: KeyLimits | None = None,
        origins: tuple[str, ...] = (),
        clock: Callable[[], datetime] = utc_now,
        shared_usage: SharedUsage | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self.proxies = proxies or TrustedProxies()
        """Names the clients behind load balancers."""
        self._ring = ring
        self._signer = signer
        self._defaults = defaults or KeyLimits()
        self._origins = origins
        self._clock = clock
        self._shared_usage = shared_usage
        self._callers: dict[str, Caller] = {}

    @property
    def requires_key(self) -> bool:
        """Whether keys are configured, so that every caller needs one."""
        return len(self._ring) > 0

    def lists_origin(self, origin: str) -> bool:
        """Whether the settings name this origin, or any."""
        return bool(origin) and ("*" in self._origins or origin in self._origins)

    def replace_keys(self, ring: KeyRing) -> None:
        """Replaces the keys; open sockets stay open."""
        self._ring = ring

    def authenticate(self, credential: str | None, origin: str | None, host: str | None, peer: str) -> Caller:
        """The caller of a request with `credential`, a key or token. Raises Forbidden for the origin, Unauthorized."""
        self.check_origin(origin, host)
        return self.caller_of(credential, peer)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Raises Forbidden for an origin that is not allowed."""
        if not origin_allowed(origin, host, self._origins):
            raise Forbidden("this origin is not allowed")

    def caller_of(self, credential: str | None, peer: str) -> Caller:
        """The caller with `credential`, whatever the origin of the request. Raises Unauthorized."""
        if not self.requires_key:
            return self._caller(caller_name(None, peer), self._defaults)
        key = None if credential is None else self._key(credential)
        if key is None:
            raise Unauthorized("an API key is required" if not credential else "this API key is not valid")
        return self._caller(caller_name(key.name, peer), key.limits.over(self._defaults))

    def check_key(self, credential: str | None) -> None:
        """Raises Unauthorized unless `credential` is an API key; tokens, which browsers hold, are for speaking only."""
        if self.requires_key and (credential is None or self._ring.find(credential, self._clock()) is None):
            raise Unauthorized("this requires an API key")

    def issue_token(self, credential: str | None, ttl_s: int) -> tuple[str, datetime]:
        """A token in the name of the key, and the time of its expiry.

        Only a key can issue tokens, so that a browser cannot prolong its own. Raises Unauthorized, and ValueError for a
        `ttl_s` outside 1 to MAX_TTL_S seconds.
        """
        if not 1 <= ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s must be between 1 and {MAX_TTL_S}, got {ttl_s}")
        now = self._clock()
        key = None if credential is None else self._ring.find(credential, now)
        if key is None:
            raise Unauthorized("an API key is required to issue tokens")
        return self._signer.issue(key.name, ttl_s, now)

    def _key(self, credential: str) -> ApiKey | None:
        now = self._clock()
        if (key := self._ring.find(credential, now)) is not None:
            return key
        name = self._signer.key_name(credential, now)
        return None if name is None else self._ring.named(name, now)

    def _caller(self, name: str, limits: KeyLimits) -> Caller:
        if (caller := self._callers.get(name)) is None:
            if len(self._callers) >= _MAX_ADDRESSES and not self.requires_key:
                self._callers = {known: other for known, other in self._callers.items() if not other.unused}
            caller = self._callers[name] = Caller(
                name, limits, has_key=self.requires_key, shared_usage=self._shared_usage
            )
        elif caller.limits != limits:
            caller.set_limits(limits)
        return caller


def access_from_settings(
    settings: Settings, shared_usage: SharedUsage | None = None, secret: bytes | None = None
) -> AccessControl:
    """Access control as configured. Raises SettingsError when the key file, a key or the secret cannot be used.

    `shared_usage` counts over all processes of the gateway; `secret` signs tokens if the settings name no file.
    """
    defaults = KeyLimits(
        sockets=settings.key_sockets,
        utterances=settings.key_utterances,
        characters_per_minute=settings.key_characters_per_minute,
    )
    ring, signer = keys_from_settings(settings), _signer(settings, secret)
    return AccessControl(
        ring,
        signer,
        defaults=defaults,
        origins=settings.allowed_origins,
        shared_usage=shared_usage,
        proxies=TrustedProxies(settings.trusted_proxies),
    )


def keys_from_settings(settings: Settings) -> KeyRing:
    """Reads the key file. Raises SettingsError, also for a configured file without keys."""
    try:
        ring = load_keys(settings.keys_file, settings.keys)
    except KeysError as error:
        raise SettingsError(f"keys: {error}") from None
    if settings.keys_file is not None and not ring:
        # An empty file must not disable authentication.
        raise SettingsError(f"keys: {settings.keys_file} holds no key")
    return ring


def _signer(settings: Settings, secret: bytes | None) -> TokenSigner:
    path = settings.token_secret_file
    if path is None:
        return TokenSigner(secret)
    try:
        return TokenSigner(path.read_bytes().strip())
    except OSError as missing:
        raise SettingsError(f"token_secret_file: cannot read {path}: {missing.strerror}") from None
    except ValueError as short:
        raise SettingsError(f"token_secret_file: {short}") from None
