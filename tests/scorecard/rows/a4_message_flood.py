from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..card import Trial, row
from ..disturbance import disturbed
from ..gateways import Served, tone_gateway
from ..wire import PING, TEXT, Client, connect, frame

FLOODERS = 4
SECONDS = 8.0
BATCH = 200
CONTINUATION = 0
ALLOWED = {1008, 1009}
"""Policy, or too big where an endless message grows beyond what one may be."""
FLOODS = {
    "messages": frame(TEXT, b'{"type":"ping"}'),
    "unknown": frame(TEXT, b'{"type":"text","utterance":"x","text":"y"}'),
    "pings": frame(PING, b"x"),
    "fragments": frame(CONTINUATION, b" "),
    "empty fragments": frame(CONTINUATION, b"", last=False),
}


@dataclass
class Ended:
    """How a flooder ended."""

    code: int
    after_s: float
    limited: bool
    """It was told `rate_limited` before."""


@row(
    "A4",
    "message floods, endless fragments",
    "rate_limited, then 1008 ≤ 2 s; others' gap p99 ≤ 1.2 ×",
    nightly_s=75,
    timed=True,
)
async def message_flood(trial: Trial) -> None:
    async with tone_gateway(slots=200) as served:
        before_bytes = served.memory_bytes
        ended = await disturbed(trial, served, SECONDS, lambda: _flood_all(served), 1.2)
        for name, ends in ended.items():
            trial.note(f"{name}: codes", ", ".join(map(str, sorted({end.code for end in ends}))))
            if name == "pings":
                continue  # answered by the library; A3 is about those
            wrong = sum(end.code not in ALLOWED for end in ends)
            trial.equal(f"{name}: not closed as they should be", wrong, 0)
            trial.most(f"{name}: closed after s, max", max(end.after_s for end in ends), 2, timed=True)
        told = [end.limited for name in ("messages", "unknown") for end in ended[name]]
        trial.equal("never told rate_limited", told.count(False), 0)
        trial.note("MiB more, the others' included", (served.memory_bytes - before_bytes) / 2**20)
        trial.equal("complaints", len(served.complaints), 0)


async def _flood_all(served: Served) -> dict[str, list[Ended]]:
    """One kind after another, a few floods of each at once, each as long as it is let."""
    ended = {}
    for name, piece in FLOODS.items():
        opening = frame(TEXT, b" ", last=False) if "fragments" in name else b""
        # A continuation is the last only in a flood of messages; here none ever is.
        body = bytes((piece[0] & 0x7F,)) + piece[1:] if "fragments" in name else piece
        floods = (_flood(served.port, opening, body) for _ in range(FLOODERS))
        ended[name] = list(await asyncio.gather(*floods))
    return ended


async def _flood(port: int, opening: bytes, piece: bytes) -> Ended:
    client: Client = await connect(port)
    began_s = client.now()
    client.transport.write(opening)
    while not client.closed.done() and client.now() - began_s < SECONDS / 3:
        if client.transport.get_write_buffer_size() < 65_536:
            client.transport.write(piece * BATCH)
        await asyncio.sleep(0)
    limited = any(message.get("code") == "rate_limited" for message in client.messages)
    ended = Ended(client.close_code if client.closed.done() else 0, client.now() - began_s, limited)
    client.abort()
    return ended
