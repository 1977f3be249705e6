from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import string
from collections.abc import Iterator
from urllib.parse import quote

from .scorecard.card import Trial, row
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.raw_websocket import PATH, RawWebSocket, connect

BAD_REQUEST, UNAUTHORIZED = 400, 401
PLACES = ("bearer", "token", "xi-api-key", "subprotocol", "query", "query authorization")


@row(
    "A7",
    "keys: bad, missing, forged, expired",
    "≥ 200 bad cases, none admitted; no key in a log, no engine work before auth",
    light_s=6,
)
async def keys(trial: Trial) -> None:
    key, revoked = "vg_" + secrets.token_urlsafe(32), "vg_" + secrets.token_urlsafe(32)
    entry = "alice=sha256:" + hashlib.sha256(key.encode()).hexdigest()
    async with tone_gateway(keys=[entry]) as served:
        opened = (await served.ask("state"))["opened"]
        cases = [(place, bad) for place in PLACES for bad in _bad(key, revoked)] + [("nowhere", "")]
        answers = await asyncio.gather(*(_knock(served.port, place, bad) for place, bad in cases))
        trial.least("bad cases", len(cases), 200)
        trial.equal("admitted", answers.count(101), 0)
        # What is no HTTP at all gets a 400, or no answer.
        trial.equal(
            "refused otherwise than 401, 400 or by silence", sum(a not in (UNAUTHORIZED, 400, 0) for a in answers), 0
        )
        trial.equal("opened at the engine", (await served.ask("state"))["opened"] - opened, 0)
        good = [await _knock(served.port, place, key) for place in PLACES]
        trial.equal("good key admitted in every place", str(set(good)), "{101}")
        said = [bad for _, bad in cases if len(bad) > 8] + [key, entry.partition(":")[2]]
        trial.equal("keys in the log", sum(one in served.log for one in said), 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _knock(port: int, place: str, credential: str) -> int:
    """The status of a handshake that presents `credential` there; 0 for no answer."""
    headers, path = _presented(place, credential)
    try:
        wire: RawWebSocket = await connect(port, RawWebSocket, headers, path)
    except (OSError, TimeoutError):
        return 0
    wire.abort()
    return wire.answered.result()


def _presented(place: str, credential: str) -> tuple[tuple[str, ...], str]:
    # What a header cannot carry goes as its UTF-8 bytes.
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


def _bad(key: str, revoked: str) -> Iterator[str]:
    """What comes near a key, and what people try."""
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
    """A token in alice's name that nobody signed."""
    claims = {"sub": "alice", "aud": "voxgate", "exp": 4102444800}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    return ".".join([*parts, "" if header["alg"] == "none" else "AAAA"])


LISTED = "https://voice.example"
KEY = "vg_a-key-of-this-test"


@row(
    "A8",
    "Origin: absent, null, suffix, case, port, userinfo",
    "403 unless listed; absent only with a key, where there are keys",
    light_s=4,
)
async def origins(trial: Trial) -> None:
    entry = "alice=sha256:" + hashlib.sha256(KEY.encode()).hexdigest()
    async with tone_gateway(allowed_origins=LISTED, keys=entry) as served:
        await _keyed(trial, served)
    async with tone_gateway(allowed_origins=LISTED) as served:
        statuses = [await _status(served, f"Origin: {origin}") for origin in _foreign()]
        trial.equal("without keys: foreign ones admitted", len(statuses) - statuses.count(403), 0)
        for name, headers in {
            "own page": (f"Origin: http://127.0.0.1:{served.port}",),
            "listed": (f"Origin: {LISTED}",),
            "absent": (),
        }.items():
            trial.equal(name, await _status(served, *headers), 101)


async def _keyed(trial: Trial, served: GatewayProcess) -> None:
    key = f"Authorization: Bearer {KEY}"
    foreign = list(_foreign())
    statuses = [await _status(served, key, f"Origin: {origin}") for origin in foreign]
    trial.note("foreign origins", len(foreign))
    trial.equal("admitted", len(statuses) - statuses.count(403), 0)
    trial.missed += [f"{origin!r}: {code}" for origin, code in zip(foreign, statuses, strict=True) if code != 403][:5]
    two = await _status(served, key, f"Origin: {LISTED}", "Origin: https://evil.example")
    trial.equal("two origins", two, 403)
    trial.equal("listed, with a key", await _status(served, key, f"Origin: {LISTED}"), 101)
    trial.equal("listed, without", await _status(served, f"Origin: {LISTED}"), 401)
    trial.equal("absent, with a key", await _status(served, key), 101)
    trial.equal("absent, without", await _status(served), 401)


def _foreign() -> Iterator[str]:
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


async def _status(served: GatewayProcess, *headers: str) -> int:
    wire: RawWebSocket = await connect(served.port, RawWebSocket, headers)
    wire.abort()
    return wire.answered.result()
