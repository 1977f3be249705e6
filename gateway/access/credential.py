"""Where a request carries its key or token: each client library has its own place."""

from __future__ import annotations

from collections.abc import Mapping

_SCHEMES = ("bearer", "token")


def credential_of(headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
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
