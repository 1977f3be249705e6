"""Authentication: the credential, origin and address of a request decide which caller it belongs to, and its rights."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from voxgate.pipeline.errors import BadMessage

from ..errors import QUOTED_CHARACTERS, Forbidden, Unauthorized, UnknownHost
from ..messages.connection import SUBPROTOCOL
from ..settings import Settings, SettingsError
from .caller import Caller, Grant, caller_name
from .exposure import anonymous_rights
from .keys import ApiKey, KeyLimits, KeyRing, KeysError, load_keys, utc_now
from .proxies import TrustedProxies
from .rights import TOKEN_RIGHTS, Right
from .tokens import MAX_TTL_S, TokenSigner
from .usage import SharedUsage

_SCHEMES = ("bearer", "token")
QUERY_CREDENTIALS = ("token", "authorization", "access_token", "api_key")
"""Query parameters that may hold a token: the native one, ElevenLabs' and Cartesia's."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A key or token as a client presents it; `in_url`: in the query, where only tokens are accepted."""

    value: str = field(repr=False)
    in_url: bool = False


def find_credential(header: Callable[[str], Sequence[str]], query: Mapping[str, str]) -> Credential | None:
    """The first credential found in a request; `header` returns all values of a header of any case.

    `Authorization: Bearer` or `Token`, then `xi-api-key` or `X-API-Key`; a browser cannot set headers on a WebSocket,
    so also `Sec-WebSocket-Protocol: token, KEY`, and QUERY_CREDENTIALS. Raises BadMessage for a header that is given
    twice, because a proxy may have checked the other value.
    """
    in_header = (
        _from_authorization(single_value("Authorization", header))
        or single_value("xi-api-key", header).strip()
        or single_value("X-API-Key", header).strip()
        or _from_subprotocols(offered_subprotocols(header))
    )
    if in_header:
        return Credential(in_header)
    for name in QUERY_CREDENTIALS:
        if in_query := query.get(name):
            return Credential(_from_authorization(in_query) or in_query, in_url=True)
    return None


def offered_subprotocols(header: Callable[[str], Sequence[str]]) -> list[str]:
    """The subprotocols that a client offers, of one header or of several (RFC 6455, section 11.3.4)."""
    return [name.strip() for name in ",".join(header("Sec-WebSocket-Protocol")).split(",") if name.strip()]


def credential_scheme(subprotocols: Sequence[str]) -> str | None:
    """The first of the subprotocols `token, KEY`; None when they hold no credential."""
    names = _without_protocol(subprotocols)
    return names[0] if len(names) == 2 and names[0].lower() in _SCHEMES else None


def single_value(name: str, header: Callable[[str], Sequence[str]]) -> str:
    """The value of a header, "" without it. Raises BadMessage when it occurs more than once."""
    values = header(name)
    if len(values) > 1:
        raise BadMessage(f"the header {name} must occur at most once")
    return values[0] if values else ""


def _from_authorization(header: str) -> str | None:
    """RFC 6750, section 2.1."""
    scheme, _, credential = header.strip().partition(" ")
    return credential.strip() or None if scheme.lower() in _SCHEMES else None


def _from_subprotocols(subprotocols: Sequence[str]) -> str | None:
    return None if credential_scheme(subprotocols) is None else _without_protocol(subprotocols)[1]


def _without_protocol(subprotocols: Sequence[str]) -> list[str]:
    return [name for name in subprotocols if name != SUBPROTOCOL]


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


def host_allowed(host: str | None, allowed: Iterable[str]) -> bool:
    """Whether the Host header of a request names this gateway: by IP address, as localhost, or by an `allowed` name.

    A page whose own name resolves to this gateway (DNS rebinding) sends that name, which its owner chose. Clients
    without a Host header are no browsers.
    """
    if host is None or "*" in allowed:
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return _is_address(name) or name in allowed


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
    """Identifies clients: by API key or token where keys are configured, otherwise by address.

    `anonymous_rights` are those of clients without keys.
    """

    def __init__(
        self,
        ring: KeyRing,
        signer: TokenSigner,
        *,
        defaults: KeyLimits | None = None,
        origins: tuple[str, ...] = (),
        anonymous_rights: frozenset[Right] = frozenset(Right),
        hosts: Iterable[str] = (),
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
        self._anonymous_rights = anonymous_rights
        self._hosts = frozenset(host.lower() for host in hosts)
        self._clock = clock
        self._shared_usage = shared_usage
        self._callers: dict[str, Caller] = {}

    @property
    def requires_key(self) -> bool:
        """Whether keys are configured, so that every client needs one."""
        return len(self._ring) > 0

    def lists_origin(self, origin: str) -> bool:
        """Whether the settings name this origin, or any."""
        return bool(origin) and ("*" in self._origins or origin in self._origins)

    def replace_keys(self, ring: KeyRing) -> None:
        """Replaces the keys and their callers' limits. `is_revoked` then returns True for grants that end by that."""
        self._ring = ring
        for caller in self._callers.values():
            if (key := ring.named(caller.name)) is not None:
                caller.set_limits(key.limits.over(self._defaults))

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Raises Forbidden for an origin that is not allowed."""
        if not origin_allowed(origin, host, self._origins):
            raise Forbidden("this origin is not allowed")

    def check_host(self, host: str | None) -> None:
        """Raises UnknownHost for a name that is not that of this gateway."""
        if not host_allowed(host, self._hosts):
            name = repr(host)[:QUOTED_CHARACTERS]
            raise UnknownHost(f"this gateway is not known as {name}: list the name with --allowed-hosts")

    def authenticate(self, credential: Credential | None, peer: str) -> Grant:
        """What a client with `credential` may do. Raises Unauthorized."""
        if not self.requires_key:
            caller = self._caller(caller_name(None, peer), self._defaults)
            return Grant(caller, self._anonymous_rights)
        if credential is None:
            raise Unauthorized("an API key is required")
        now = self._clock()
        if (key := self._ring.find(credential.value)) is not None and not key.expired(now):
            if credential.in_url:
                raise Unauthorized(
                    "an API key must not be in the URL, which proxies and browsers record: send it in the header "
                    "Authorization or Sec-WebSocket-Protocol, or use a short-lived token (POST /v1/tokens)"
                )
            return self._grant(key, key.rights)
        if (claims := self._signer.read(credential.value, now)) is not None:
            key = self._ring.named(claims.key_name)
            if key is not None and key.fingerprint == claims.key_fingerprint and not key.expired(now):
                return self._grant(key, key.rights & TOKEN_RIGHTS, claims.expires)
        raise Unauthorized("this API key is not valid")

    def is_revoked(self, grant: Grant) -> bool:
        """Whether the key of a grant was removed, replaced or deprived of the right to speak."""
        if grant.key_hash is None or not self.requires_key:
            return self.requires_key or grant.key_hash is not None
        key = self._ring.named(grant.caller.name)
        return key is None or key.hash != grant.key_hash or Right.SPEAK not in key.rights

    def has_expired(self, grant: Grant) -> bool:
        """Whether the token or the key of a grant has expired."""
        if grant.key_hash is None:
            return False
        now, key = self._clock(), self._ring.named(grant.caller.name)
        if key is not None and key.expired(now):
            return True
        return grant.token_expires is not None and grant.token_expires <= now

    def checkpoint_key(self, key_hash: str | None) -> bytes:
        """As `TokenSigner.checkpoint_key`."""
        return self._signer.checkpoint_key(key_hash)

    def issue_token(self, grant: Grant, ttl_s: int) -> tuple[str, datetime]:
        """A token in the name of the grant's key, and the time of its expiry.

        Raises Unauthorized without a key, or if it was replaced since the grant, and ValueError for a `ttl_s` outside
        1 to MAX_TTL_S seconds.
        """
        if not 1 <= ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s must be between 1 and {MAX_TTL_S}, got {ttl_s}")
        key = self._ring.named(grant.caller.name)
        if key is None or self.is_revoked(grant):
            raise Unauthorized("an API key is required to issue tokens")
        return self._signer.issue(key, ttl_s, self._clock())

    def _grant(self, key: ApiKey, rights: frozenset[Right], token_expires: datetime | None = None) -> Grant:
        caller = self._caller(caller_name(key.name, ""), key.limits.over(self._defaults))
        return Grant(caller, rights, key.hash, token_expires)

    def _caller(self, name: str, limits: KeyLimits) -> Caller:
        if (caller := self._callers.get(name)) is None:
            if len(self._callers) >= _MAX_ADDRESSES and not self.requires_key:
                self._callers = {known: other for known, other in self._callers.items() if not other.unused}
            caller = self._callers[name] = Caller(
                name, limits, has_key=self.requires_key, shared_usage=self._shared_usage
            )
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
        hosts=settings.allowed_hosts,
        anonymous_rights=anonymous_rights(settings),
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
        return TokenSigner(path.read_bytes().strip(), shared=True)
    except OSError as missing:
        raise SettingsError(f"token_secret_file: cannot read {path}: {missing.strerror}") from None
    except ValueError as short:
        raise SettingsError(f"token_secret_file: {short}") from None
