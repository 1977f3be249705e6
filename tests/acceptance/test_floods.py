from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .scorecard.card import Trial, row
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, disturbed
from .testbed.raw_websocket import PING, TEXT, RawClient, clients, connect, frame, upgrade

HALF_HANDSHAKE_S = 10.0
LIMIT_S = 5.5


@row(
    "A1",
    "1,000 half handshakes at 1 byte/s",
    "all closed ≤ 5.5 s, the others' gap p99 unchanged (≤ 1.1 ×)",
    nightly_s=40,
    timed=True,
)
async def half_handshakes(trial: Trial) -> None:
    count = trial.size(1000)
    async with tone_gateway(slots=200, **UNLIMITED) as served:
        before = served.descriptors
        held_s = await disturbed(trial, served, HALF_HANDSHAKE_S, lambda: _dribble(served.port, count), 1.1)
        trial.note("half handshakes", count)
        trial.equal("never closed", sum(seconds is None for seconds in held_s), 0)
        trial.most("closed after s, max", max(seconds for seconds in held_s if seconds is not None), LIMIT_S)
        trial.equal("descriptors left", served.descriptors - before, 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _dribble(port: int, count: int) -> list[float | None]:
    """How long each connection was kept; None for one that was not closed."""
    return list(await asyncio.gather(*(_one(port) for _ in range(count))))


async def _one(port: int) -> float | None:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = loop.time()
    try:
        for byte in upgrade()[: int(HALF_HANDSHAKE_S)]:
            writer.write(bytes((byte,)))
            try:
                async with asyncio.timeout(1):
                    await reader.read()
                return loop.time() - began_s
            except TimeoutError:
                continue
            except OSError:
                return loop.time() - began_s
        return None
    finally:
        writer.transport.abort()


TOO_BIG = 1009
CONTINUATION = 0
MESSAGE_BYTES = 65_536
FRAGMENT_BYTES = 1000


@row(
    "A2",
    "oversize: one frame, fragments, lengths up to 2^63",
    "1009 ≤ 50 ms, memory + ≤ 1 MiB",
    light_s=4,
    nightly_s=8,
    timed=True,
)
async def oversize(trial: Trial) -> None:
    each = trial.size(50, light=5)
    fragment = b"x" * FRAGMENT_BYTES
    floods = {
        "one frame": frame(TEXT, b"x" * (MESSAGE_BYTES + 1)),
        "fragments": frame(TEXT, fragment, last=False) + frame(CONTINUATION, fragment, last=False) * 70,
        "2^63 - 1": b"\x81\xff" + (2**63 - 1).to_bytes(8, "big") + bytes(4) + b"x" * 1000,
        "2^63": b"\x81\xff" + (2**63).to_bytes(8, "big") + bytes(4) + b"x" * 1000,
        "1 GiB": b"\x81\xff" + (2**30).to_bytes(8, "big") + bytes(4) + b"x" * 1000,
    }
    async with tone_gateway() as served:
        for data in floods.values():
            await _send(served.port, data)
        before_bytes = served.memory_bytes
        slowest_ms, peak_bytes = 0.0, before_bytes
        for name, data in floods.items():
            codes = set()
            for _ in range(each):
                code, took_ms = await _send(served.port, data)
                codes.add(code)
                slowest_ms = max(slowest_ms, took_ms)
                peak_bytes = max(peak_bytes, served.memory_bytes)
            trial.equal(name, str(sorted(codes)), f"[{TOO_BIG}]")
        trial.most("closed after ms, max", slowest_ms, 50, timed=True)
        trial.most("MiB more", (peak_bytes - before_bytes) / 2**20, 1)
        trial.equal("complaints", len(served.complaints), 0)


async def _send(port: int, data: bytes) -> tuple[int, float]:
    """The close code that it brings, and after how many milliseconds."""
    client: RawClient = await connect(port)
    began_s = client.now()
    client.transport.write(data)
    async with asyncio.timeout(10):
        code = await client.closed
    return code, 1000 * (client.closed_s - began_s)


CONNECTIONS = 20
PINGS = frame(PING, bytes(125)) * 500


@row(
    "A3",
    "ping flood without reading, 20 connections",
    "memory + ≤ 10 MiB; an utterance meanwhile unharmed",
    light_s=7,
    nightly_s=20,
)
async def ping_flood(trial: Trial) -> None:
    seconds = trial.size(12, light=3)
    async with tone_gateway() as served:
        speaker = await connect(served.port)
        heard = speaker.say("Somebody speaks while all of that goes on around him, and is heard.")
        flooding = await clients(served.port, CONNECTIONS)
        await asyncio.sleep(0.5)
        before_bytes = peak_bytes = served.memory_bytes
        loop = asyncio.get_running_loop()
        end_s, sent, cut = loop.time() + seconds, 0, 0
        while loop.time() < end_s:
            for number, client in enumerate(flooding):
                if client.closed.done() or client.transport.is_closing():
                    cut += 1
                    flooding[number] = await connect(served.port)
                    continue
                client.transport.pause_reading()
                if client.transport.get_write_buffer_size() < 1 << 20:
                    client.transport.write(PINGS)
                    sent += 500
            await asyncio.sleep(0)
            peak_bytes = max(peak_bytes, served.memory_bytes)
        await heard.ended(30)
        trial.note("pings", sent)
        trial.note("connections cut", cut)
        trial.most("MiB more", (peak_bytes - before_bytes) / 2**20, 10)
        trial.equal("utterance", heard.mismatch or heard.outcome, "done")
        trial.equal("complaints", len(served.complaints), 0)
        for client in flooding:
            client.abort()


FLOODERS = 4
FLOOD_S = 8.0
BATCH = 200
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
class FloodOutcome:
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
        ended = await disturbed(trial, served, FLOOD_S, lambda: _flood_all(served), 1.2)
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


async def _flood_all(served: GatewayProcess) -> dict[str, list[FloodOutcome]]:
    """One kind after another, a few floods of each at once, each as long as it is let."""
    ended = {}
    for name, piece in FLOODS.items():
        opening = frame(TEXT, b" ", last=False) if "fragments" in name else b""
        # A continuation is the last only in a flood of messages; here none ever is.
        body = bytes((piece[0] & 0x7F,)) + piece[1:] if "fragments" in name else piece
        floods = (_flood(served.port, opening, body) for _ in range(FLOODERS))
        ended[name] = list(await asyncio.gather(*floods))
    return ended


async def _flood(port: int, opening: bytes, piece: bytes) -> FloodOutcome:
    client: RawClient = await connect(port)
    began_s = client.now()
    client.transport.write(opening)
    while not client.closed.done() and client.now() - began_s < FLOOD_S / 3:
        if client.transport.get_write_buffer_size() < 65_536:
            client.transport.write(piece * BATCH)
        await asyncio.sleep(0)
    limited = any(message.get("code") == "rate_limited" for message in client.messages)
    ended = FloodOutcome(client.close_code if client.closed.done() else 0, client.now() - began_s, limited)
    client.abort()
    return ended
