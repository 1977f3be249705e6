"""Clients that send too slowly, too much or too fast: each is closed, and other sessions are not disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fakes.waiting import DEADLINE_S, until

from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, compare_with_disturbance
from .testbed.measuring import Figures, nightly
from .testbed.raw_websocket import PING, PONG, TEXT, connect, connect_many, frame, upgrade_request

CONTINUATION = 0
POLICY_VIOLATION, TOO_BIG = 1008, 1009
LISTENERS = 100

# Handshakes

HANDSHAKE_S = 10.0
"""How long the client goes on sending one byte a second."""
HANDSHAKE_LIMIT_S = 5.5


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet_machine")
async def test_incomplete_handshakes_are_closed(scaled: Callable[..., int], figures: Figures) -> None:
    count = scaled(1000)
    async with tone_gateway(slots=200, **UNLIMITED) as gateway:
        before = gateway.descriptors
        kept_s = await compare_with_disturbance(
            figures,
            gateway,
            scaled(LISTENERS, least=5),
            HANDSHAKE_S,
            lambda: asyncio.gather(*(_send_handshake_slowly(gateway.port) for _ in range(count))),
            1.1,
        )
        closed_s = [seconds for seconds in kept_s if seconds is not None]
        figures.note("incomplete handshakes", count)
        assert len(closed_s) == count, "connections that were never closed"
        figures.time_at_most("closed after s, max", max(closed_s), HANDSHAKE_LIMIT_S)
        await until(lambda: gateway.descriptors == before)
        assert gateway.log_errors == []


async def _send_handshake_slowly(port: int) -> float | None:
    """Send a byte a second. Returns when the gateway closed the connection, None when it did not."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = loop.time()
    try:
        for byte in upgrade_request()[: int(HANDSHAKE_S)]:
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


# Size

MESSAGE_BYTES = 65_536
"""Largest message that the gateway takes."""
CLOSE_MS = 50
EXTRA_MIB = 1
_FRAGMENT = b"x" * 1000
OVERSIZE = {
    "one frame": frame(TEXT, b"x" * (MESSAGE_BYTES + 1)),
    "fragments": frame(TEXT, _FRAGMENT, last=False) + frame(CONTINUATION, _FRAGMENT, last=False) * 70,
    "length 2^63 - 1": b"\x81\xff" + (2**63 - 1).to_bytes(8, "big") + bytes(4) + _FRAGMENT,
    "length 2^63": b"\x81\xff" + (2**63).to_bytes(8, "big") + bytes(4) + _FRAGMENT,
    "length 1 GiB": b"\x81\xff" + (2**30).to_bytes(8, "big") + bytes(4) + _FRAGMENT,
}


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("each", [5, nightly(50)])
async def test_oversized_messages_close_with_1009(each: int, scaled: Callable[..., int], figures: Figures) -> None:
    async with tone_gateway() as gateway:
        for data in OVERSIZE.values():  # allocates what is allocated once
            await _send(gateway.port, data)
        before_bytes = gateway.memory_bytes
        slowest_ms, peak_bytes = 0.0, before_bytes
        for name, data in OVERSIZE.items():
            for _ in range(scaled(each)):
                code, took_ms = await _send(gateway.port, data)
                assert code == TOO_BIG, name
                slowest_ms = max(slowest_ms, took_ms)
                peak_bytes = max(peak_bytes, gateway.memory_bytes)
        figures.time_at_most("closed after ms, max", slowest_ms, CLOSE_MS)
        figures.at_most("MiB more", (peak_bytes - before_bytes) / 2**20, EXTRA_MIB)
        assert gateway.log_errors == []


async def _send(port: int, data: bytes) -> tuple[int, float]:
    """Send `data`. Returns the close code and after how many milliseconds it came."""
    client = await connect(port)
    began_s = client.now()
    client.transport.write(data)
    async with asyncio.timeout(DEADLINE_S):
        code = await client.closed
    return code, 1000 * (client.closed_s - began_s)


# Pings

PING_CONNECTIONS = 20
PINGS_PER_WRITE = 500
PINGS = frame(PING, bytes(125)) * PINGS_PER_WRITE
UNSENT_BYTES = 1 << 20
"""Pings that wait in one client; more are written when fewer wait."""
PING_FLOOD_MIB = 10


@pytest.mark.parametrize("pings", [400_000, nightly(9_000_000)])
async def test_ping_flood_is_bounded(pings: int, scaled: Callable[..., int], figures: Figures) -> None:
    """Clients that send pings and read no pongs cost little memory and do not damage the speech of another session."""
    async with tone_gateway() as gateway:
        speaker = await connect(gateway.port)
        received = speaker.say("This sentence is spoken while twenty other connections send pings.")
        flooding = await connect_many(gateway.port, PING_CONNECTIONS)
        await until(lambda: received.playback.arrivals)
        before_bytes = peak_bytes = gateway.memory_bytes
        sent, closed = 0, 0
        async with asyncio.timeout(10 * DEADLINE_S):
            while sent < scaled(pings):
                for number, client in enumerate(flooding):
                    if client.closed.done() or client.transport.is_closing():
                        closed += 1
                        flooding[number] = await connect(gateway.port)
                        continue
                    client.transport.pause_reading()
                    if client.transport.get_write_buffer_size() < UNSENT_BYTES:
                        client.transport.write(PINGS)
                        sent += PINGS_PER_WRITE
                await asyncio.sleep(0)
                peak_bytes = max(peak_bytes, gateway.memory_bytes)
        assert await received.ended() == "done"
        assert received.mismatch == ""
        figures.note("pings", sent)
        figures.note("connections closed", closed)
        figures.at_most("MiB more", (peak_bytes - before_bytes) / 2**20, PING_FLOOD_MIB)
        assert gateway.log_errors == []
        for client in flooding:
            client.abort()


# Messages

FLOODERS = 4
FLOOD_S = 8.0
MESSAGES_PER_WRITE = 200
FLOOD_CLOSE_S = 2
FLOODS = {
    "messages": frame(TEXT, b'{"type":"ping"}'),
    "unknown": frame(TEXT, b'{"type":"text","utterance":"x","text":"y"}'),
    "pings": frame(PING, b"x"),
    "pongs": frame(PONG, b"x"),
    "fragments": frame(CONTINUATION, b" ", last=False),
    "empty fragments": frame(CONTINUATION, b"", last=False),
}


@dataclass
class FloodOutcome:
    """How a flooding connection ended."""

    code: int
    """0 when the gateway did not close it."""
    after_s: float
    warned: bool
    """Whether it got `rate_limited` before."""


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet_machine")
async def test_message_floods_are_closed(scaled: Callable[..., int], figures: Figures) -> None:
    async with tone_gateway(slots=200) as gateway:
        before_bytes = gateway.memory_bytes
        outcomes = await compare_with_disturbance(
            figures, gateway, scaled(LISTENERS, least=5), FLOOD_S, lambda: _flood_all(gateway.port), 1.2
        )
        for name, ends in outcomes.items():
            if name == "pings":
                continue  # pongs are throttled, not refused: test_ping_flood_is_bounded
            # An endless message may also grow beyond the largest allowed one.
            assert {end.code for end in ends} <= {POLICY_VIOLATION, TOO_BIG}, name
            figures.time_at_most(f"{name}: closed after s, max", max(end.after_s for end in ends), FLOOD_CLOSE_S)
        assert all(end.warned for name in ("messages", "unknown") for end in outcomes[name])
        figures.note("MiB more, listeners included", (gateway.memory_bytes - before_bytes) / 2**20)
        assert gateway.log_errors == []


async def _flood_all(port: int) -> dict[str, list[FloodOutcome]]:
    """One kind of flood after another, each on a few connections at once.

    Each comes from an address of its own, because the messages of a caller that has sent many are handled late.
    """
    outcomes = {}
    for number, (name, message) in enumerate(FLOODS.items(), 2):
        address = f"127.0.0.{number}"
        first = frame(TEXT, b" ", last=False) if "fragments" in name else b""
        outcomes[name] = list(await asyncio.gather(*(_flood(port, address, first, message) for _ in range(FLOODERS))))
    return outcomes


async def _flood(port: int, address: str, first: bytes, message: bytes) -> FloodOutcome:
    client = await connect(port, address)
    began_s = client.now()
    client.transport.write(first)
    while not client.closed.done() and client.now() - began_s < FLOOD_S / 3:
        if client.transport.get_write_buffer_size() < MESSAGE_BYTES:
            client.transport.write(message * MESSAGES_PER_WRITE)
        await asyncio.sleep(0)
    warned = any(message.get("code") == "rate_limited" for message in client.messages)
    outcome = FloodOutcome(client.close_code if client.closed.done() else 0, client.now() - began_s, warned)
    client.abort()
    return outcome
