"""Short-lived signed tokens for browsers, which must not hold an API key (RFC 7519). A token belongs to one key."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import jwt

from .keys import ApiKey

DEFAULT_TTL_S = 60
MAX_TTL_S = 3600
_ALGORITHM = "HS256"
_AUDIENCE = "voxgate"
_MIN_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The content of a verified token: name and fingerprint of its key, and the time of its expiry."""

    key_name: str
    key_fingerprint: str
    expires: datetime


class TokenSigner:
    """Issues and verifies tokens. Replicas with the same `secret` accept each other's; None draws a random one.

    `shared`: whether all replicas have the secret. Raises ValueError for a secret of less than 32 bytes.
    """

    def __init__(self, secret: bytes | None = None, *, shared: bool = False) -> None:
        if secret is not None and len(secret) < _MIN_SECRET_BYTES:
            raise ValueError(f"a token secret must have at least {_MIN_SECRET_BYTES} bytes, got {len(secret)}")
        self._secret = hashlib.sha256(secret or secrets.token_bytes(32)).digest()
        self._shared = shared

    def checkpoint_key(self, key_hash: str | None) -> bytes:
        """What authenticates checkpoints of the API key with that hash; None stands for clients without a key.

        It is the same in all replicas. Where they share no secret, it follows from the hash of the key alone: a client
        that has the key could then make a checkpoint, which allows nothing that the key does not.
        """
        secret = self._secret if self._shared else b""
        return hmac.digest(secret, b"voxgate checkpoint " + (key_hash or "").encode(), "sha256")

    def issue(self, key: ApiKey, ttl_s: int, now: datetime) -> tuple[str, datetime]:
        """A token that speaks in the name of `key` for `ttl_s` seconds, and the time of its expiry."""
        expires = now + timedelta(seconds=ttl_s)
        claims = {"sub": key.name, "key": key.fingerprint, "aud": _AUDIENCE, "exp": expires}
        return jwt.encode(claims, self._secret, _ALGORITHM), expires

    def read(self, token: str, now: datetime) -> TokenClaims | None:
        """What a token says; None if it is malformed, forged or expired."""
        if not token.isascii():  # the library raises an undocumented error for other text
            return None
        try:
            claims = jwt.decode(
                token,
                self._secret,
                [_ALGORITHM],
                audience=_AUDIENCE,
                # Expiry is compared with `now` below.
                options={"require": ["exp", "sub", "key", "aud"], "verify_exp": False},
            )
            expires = datetime.fromtimestamp(claims["exp"], UTC)
        except (jwt.InvalidTokenError, TypeError, ValueError, OverflowError):  # the latter of odd times of expiry
            return None
        return TokenClaims(str(claims["sub"]), str(claims["key"]), expires) if expires > now else None
