"""Credentials and origins at the handshake."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import string
from collections.abc import Iterator
from urllib.parse import quote

import aiohttp
import pytest

from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.keys import bearer, key_entry, new_key
from .testbed.measuring import Figures
from .testbed.raw_websocket import PATH, RawWebSocket, connect_as

SWITCHING, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 101, 400, 401, 403
NO_ANSWER = 0

# Credentials

KEY_PLACES = ("bearer", "token", "xi-api-key", "subprotocol")
URL_PLACES = ("query", "query authorization")
PLACES = KEY_PLACES + URL_PLACES
BAD_CASES = 200


async def test_only_valid_keys_are_accepted(figures: Figures) -> None:
    """In every place that can carry a credential, and no key in a URL.

    A refused handshake starts no work in the engine, and no key is logged.
    """
    key, revoked = new_key(), new_key()
    entry = key_entry("alice", key)
    async with tone_gateway(keys=[entry]) as gateway:
        opened = (await gateway.ask("state"))["opened"]
        cases = [(place, bad) for place in PLACES for bad in _bad_credentials(key, revoked)] + [("nowhere", "")]
        statuses = await asyncio.gather(*(_handshake_status(gateway.port, place, bad) for place, bad in cases))
        figures.at_least("bad credentials", len(cases), BAD_CASES)
        # Bytes that are not HTTP get 400 or no answer.
        allowed = (UNAUTHORIZED, BAD_REQUEST, NO_ANSWER)
        wrong = [(case, status) for case, status in zip(cases, statuses, strict=True) if status not in allowed]
        assert wrong == []
        assert (await gateway.ask("state"))["opened"] == opened
        valid = {place: await _handshake_status(gateway.port, place, key) for place in PLACES}
        assert valid == dict.fromkeys(KEY_PLACES, SWITCHING) | dict.fromkeys(URL_PLACES, UNAUTHORIZED)
        token = await _token(gateway.port, key)
        by_token = {place: await _handshake_status(gateway.port, place, token) for place in PLACES}
        assert by_token == dict.fromkeys(PLACES, SWITCHING)
        secret = [bad for _, bad in cases if len(bad) > 8] + [key, token, entry.partition(":")[2]]
        assert [one for one in secret if one in gateway.log] == []
        assert gateway.log_errors == []


async def _token(port: int, key: str) -> str:
    url, headers = f"http://127.0.0.1:{port}/v1/tokens", {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http, http.post(url, headers=headers) as answer:
        return str((await answer.json())["token"])


async def _handshake_status(port: int, place: str, credential: str) -> int:
    """The status of a handshake with `credential` in that place; 0 when the gateway closed without an answer."""
    headers, path = _request_parts(place, credential)
    try:
        socket = await connect_as(RawWebSocket, port, headers, path)
    except OSError:
        return 0
    socket.abort()
    return socket.answered.result()


def _request_parts(place: str, credential: str) -> tuple[tuple[str, ...], str]:
    """Headers and path that carry the credential."""
    # Characters that a header cannot carry go as their UTF-8 bytes.
    value = credential.encode("utf-8", "surrogatepass").decode("latin-1")
    quoted = quote(credential.encode("utf-8", "surrogatepass"))
    match place:
        case "bearer" | "token":
            return (f"Authorization: {place.title()} {value}",), PATH
        case "xi-api-key":
            return (f"xi-api-key: {value}",), PATH
        case "subprotocol":
            return (f"Sec-WebSocket-Protocol: token, {value}",), PATH
        case "query":
            return (), f"{PATH}?token={quoted}"
        case "query authorization":
            return (), f"{PATH}?authorization={quoted}"
    return (), PATH


def _bad_credentials(key: str, revoked: str) -> Iterator[str]:
    """Damaged keys, other encodings of a key, forged tokens, and values that attackers try."""
    yield from ("", " ", "null", "undefined", "alice", "Bearer", "*", "admin", "0", "true", revoked)
    yield from (key[:-1], key[1:], key + "x", "x" + key, key.upper(), key.swapcase(), key[::-1], key * 2, "vg_")
    yield from (key[3:], key.replace("_", "-"), f"alice:{key}", f"alice={key}", f"{key},{key}", f"'{key}'", f'"{key}"')
    hashed = hashlib.sha256(key.encode()).hexdigest()
    yield from (hashed, f"sha256:{hashed}", f"alice=sha256:{hashed}", base64.b64encode(key.encode()).decode())
    yield from ("' OR '1'='1", "../../keys.toml", "%00", "x" * 513, "x" * 6000, "\ud800", "ключ", "\u202e" + key)
    for at in range(3, len(key), 9):  # one letter changed
        other = next(letter for letter in string.ascii_letters if letter != key[at])
        yield key[:at] + other + key[at + 1 :]
    yield from map(
        _forged, ({"alg": "none"}, {"alg": "HS256"}, {"alg": "RS256"}, {"alg": "HS256", "kid": "../../dev/null"})
    )


def _forged(header: dict[str, str]) -> str:
    """A token for alice without a valid signature."""
    claims = {"sub": "alice", "aud": "voxgate", "exp": 4102444800}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    return ".".join([*parts, "" if header["alg"] == "none" else "AAAA"])


# Origins

LISTED = "https://voice.example"
KEY = "vg_a-key-of-this-test"
WITH_KEY = bearer(KEY)


@pytest.mark.parametrize("settings", [{}, {"keys": key_entry("alice", KEY)}], ids=["without keys", "with keys"])
async def test_foreign_origins_are_refused(settings: dict[str, str]) -> None:
    headers = (WITH_KEY,) if settings else ()
    async with tone_gateway(allowed_origins=LISTED, **settings) as gateway:
        statuses = {origin: await _status(gateway, *headers, f"Origin: {origin}") for origin in _foreign_origins()}
        assert {origin: status for origin, status in statuses.items() if status != FORBIDDEN} == {}


async def test_listed_own_and_absent_origins_are_accepted_without_keys() -> None:
    async with tone_gateway(allowed_origins=LISTED) as gateway:
        assert await _status(gateway, f"Origin: http://127.0.0.1:{gateway.port}") == SWITCHING
        assert await _status(gateway, f"Origin: {LISTED}") == SWITCHING
        assert await _status(gateway) == SWITCHING


async def test_listed_and_absent_origins_need_a_key_where_there_are_keys() -> None:
    async with tone_gateway(allowed_origins=LISTED, keys=key_entry("alice", KEY)) as gateway:
        assert await _status(gateway, WITH_KEY, f"Origin: {LISTED}", "Origin: https://evil.example") == FORBIDDEN
        assert await _status(gateway, WITH_KEY, f"Origin: {LISTED}") == SWITCHING
        assert await _status(gateway, WITH_KEY) == SWITCHING
        assert await _status(gateway, f"Origin: {LISTED}") == UNAUTHORIZED
        assert await _status(gateway) == UNAUTHORIZED


def _foreign_origins() -> Iterator[str]:
    yield from ("null", "https://evil.example", "file://", "about:blank", "", " ", "*", "voice.example")
    yield from (LISTED + ".evil.example", "https://evil" + LISTED[8:], "https://sub.voice.example", LISTED + ".")
    yield from (LISTED.upper(), "https://Voice.example", "HTTPS://voice.example", "http://voice.example")
    yield from (LISTED + ":443", LISTED + ":8443", LISTED + "/", LISTED + "/page", LISTED + "?x", LISTED + "#x")
    yield from (
        "https://voice.example@evil.example",
        "https://user@voice.example",
        "https://evil.example\\@voice.example",
    )
    yield from ("https://voice.example evil.example", f"{LISTED},https://evil.example", f"{LISTED} {LISTED}")
    yield from (
        "http://127.0.0.1:1",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "ws://127.0.0.1",
    )
    yield from ("https://v\u043eice.example".encode().decode("latin-1"), "https://[::1", "http://127.0.0.1:99999")


async def _status(gateway: GatewayProcess, *headers: str) -> int:
    """The status of a handshake with these headers."""
    socket = await connect_as(RawWebSocket, gateway.port, headers)
    socket.abort()
    return socket.answered.result()
