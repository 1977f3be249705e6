"""Short-lived tokens for browsers, which must not hold an API key: signed, bound to the key that asked (RFC 7519)."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

import jwt

DEFAULT_TTL_S = 60
MAX_TTL_S = 3600
_ALGORITHM = "HS256"
_AUDIENCE = "voxgate"
_MIN_SECRET_BYTES = 32


class TokenSigner:
    """Issues and reads tokens. Replicas that share `secret` accept each other's; None draws one for this process.

    Raises ValueError for a secret of less than 32 bytes.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is not None and len(secret) < _MIN_SECRET_BYTES:
            raise ValueError(f"a token secret has at least {_MIN_SECRET_BYTES} bytes")
        self._secret = hashlib.sha256(secret or secrets.token_bytes(32)).digest()

    def issue(self, key_name: str, ttl_s: int, now: datetime) -> tuple[str, datetime]:
        """A token that opens sockets in the name of `key_name` for `ttl_s` seconds, and when it expires."""
        expires = now + timedelta(seconds=ttl_s)
        claims = {"sub": key_name, "aud": _AUDIENCE, "exp": expires}
        return jwt.encode(claims, self._secret, _ALGORITHM), expires

    def key_name(self, token: str, now: datetime) -> str | None:
        """Whose token it is; None if it is malformed, forged or has expired."""
        if not token.isascii():  # the library raises another error for what cannot be encoded
            return None
        try:
            claims = jwt.decode(
                token,
                self._secret,
                [_ALGORITHM],
                audience=_AUDIENCE,
                # Expiry is compared below with the clock that was given.
                options={"require": ["exp", "sub", "aud"], "verify_exp": False},
            )
        except jwt.InvalidTokenError:
            return None
        return str(claims["sub"]) if float(claims["exp"]) > now.timestamp() else None
