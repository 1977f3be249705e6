from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ..card import Trial, row
from ..gateways import Served, tone_gateway
from ..wire import Wire, connect

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


async def _keyed(trial: Trial, served: Served) -> None:
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


async def _status(served: Served, *headers: str) -> int:
    wire: Wire = await connect(served.port, Wire, headers)
    wire.abort()
    return wire.answered.result()
