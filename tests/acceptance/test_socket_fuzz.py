"""Random bytes, requests and frames on real sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
from fakes.waiting import until

from .testbed.gateway_process import tone_gateway
from .testbed.measuring import Figures, nightly
from .testbed.raw_websocket import TEXT, RawWebSocket, connect, frame, upgrade_request

AT_ONCE = 64
ANSWER_S = 0.05
"""How long a connection waits for what the gateway answers before it goes on."""


@pytest.mark.parametrize("connections", [300, nightly(100_000)])
async def test_gateway_survives_malformed_connections(
    connections: int, seed: int, scaled: Callable[..., int], figures: Figures
) -> None:
    """Every connection is accepted, nothing is left of it, and an ordinary utterance is spoken afterwards."""
    async with tone_gateway(sockets=500) as gateway:
        idle = await gateway.ask("state")
        descriptors = gateway.descriptors
        numbers = iter(range(scaled(connections)))
        refused = sum(await asyncio.gather(*(_fuzz(gateway.port, numbers, seed) for _ in range(AT_ONCE))))
        await gateway.until_state(lambda state: state["tasks"] <= idle["tasks"] + 1, tasks=True)
        client = await connect(gateway.port)
        received = client.say("After all that, an ordinary sentence.")
        assert await received.ended() == "done"
        assert received.mismatch == ""
        await client.close()
        await gateway.until_idle()
        await until(lambda: gateway.descriptors == descriptors)
        assert refused == 0
        assert gateway.log_errors == []
        figures.note("connections", scaled(connections))


async def _fuzz(port: int, numbers: Iterator[int], seed: int) -> int:
    """Make connections one after another. Returns how many were refused."""
    refused = 0
    for number in numbers:
        chance = random.Random(seed * 1_000_003 + number)
        try:
            await _connect_and_send(port, chance)
        except OSError:
            refused += 1
    return refused


async def _connect_and_send(port: int, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    request = _malformed_request(chance) if chance.random() < 0.2 else upgrade_request()
    _, socket = await loop.create_connection(lambda: RawWebSocket(request), "127.0.0.1", port)
    if chance.random() < 0.8:  # the others send without waiting for the handshake
        await asyncio.wait([socket.answered], timeout=ANSWER_S)
    for piece in _pieces(chance, _malformed_frames(chance)):
        if socket.closed.done():
            break
        socket.transport.write(piece)
        await asyncio.sleep(0)
    await asyncio.wait([socket.closed], timeout=ANSWER_S * chance.random())
    socket.abort()


def _malformed_request(chance: random.Random) -> bytes:
    request = bytearray(upgrade_request())
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:
            return bytes(request[: chance.randrange(len(request))])
        case 2:
            request[chance.randrange(len(request))] = chance.randrange(256)
        case 3:
            request = bytearray(request.replace(b"13", b"%d" % chance.randrange(99)))
        case 4:
            return b"GET /" + b"x" * chance.choice([100, 9000]) + b" HTTP/1.1\r\n\r\n"
        case 5:
            return b"POST /v1/speech HTTP/1.1\r\nContent-Length: 99999\r\n\r\n" + chance.randbytes(50)
    return bytes(request)


def _malformed_frames(chance: random.Random) -> bytes:
    """A few frames, valid and invalid ones."""
    parts = []
    for _ in range(chance.randint(1, 4)):
        payload = chance.randbytes(chance.choice([0, 1, 20, 125, 126, 300]))
        match chance.randrange(9):
            case 0:
                parts.append(chance.randbytes(chance.randrange(60)))
            case 1:
                parts.append(frame(TEXT, b'{"type":"ping"}'))
            case 2:
                parts.append(frame(chance.randrange(16), payload, last=chance.random() < 0.5))
            case 3:  # reserved bits
                whole = bytearray(frame(TEXT, payload))
                whole[0] |= chance.choice([0x10, 0x20, 0x40, 0x70])
                parts.append(bytes(whole))
            case 4:  # unmasked
                parts.append(bytes((0x81, min(125, len(payload)))) + payload[:125])
            case 5:  # a random 64-bit length
                parts.append(b"\x81\xff" + chance.randbytes(8) + bytes(4))
            case 6:  # a close frame with random payload
                parts.append(frame(8, chance.randbytes(chance.randrange(5))))
            case 7:
                parts.append(frame(TEXT, b'{"type":"start","utterance":"a","format":{"codec":"pcm"}}'))
            case 8:
                parts.append(frame(TEXT, b'{"type":"text","utterance":"a","text":"Hello"}'))
    return b"".join(parts)


def _pieces(chance: random.Random, data: bytes) -> list[bytes]:
    if chance.random() < 0.7:
        return [data]
    size = chance.choice([1, 3, 17])
    return [data[at : at + size] for at in range(0, min(len(data), 40 * size), size)]
