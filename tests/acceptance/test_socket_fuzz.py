from __future__ import annotations

import asyncio
import random

from .scorecard.card import Trial, row
from .testbed.gateway_process import tone_gateway
from .testbed.raw_websocket import TEXT, RawWebSocket, connect, frame, upgrade

AT_ONCE = 64
PATIENCE_S = 0.05
"""How long a fuzzed connection is kept to see what the gateway says."""


@row(
    "S5",
    "socket fuzz: requests, frames, opcodes, RSV, masks, lengths, split bytes",
    "10^5 connections, 0 uncaught, then a clean utterance",
    nightly_s=70,
)
async def socket_fuzz(trial: Trial) -> None:
    connections = trial.size(100_000)
    async with tone_gateway(sockets=500) as served:
        idle = await served.ask("state")
        descriptors = served.descriptors
        todo = iter(range(connections))
        lost = sum(await asyncio.gather(*(_fuzz(served.port, todo, trial.seed) for _ in range(AT_ONCE))))
        await asyncio.sleep(0.5)
        await served.until(lambda state: state["tasks"] <= idle["tasks"] + 1, 20)
        client = await connect(served.port)
        heard = client.say("After all that, a clean sentence.")
        await heard.ended(20)
        await client.close()
        await asyncio.sleep(0.2)
        trial.note("connections", connections)
        trial.equal("could not connect", lost, 0)
        trial.equal("complaints in the log", len(served.complaints), 0)
        trial.missed += served.complaints[:3]
        trial.equal("clean utterance", heard.mismatch or heard.outcome, "done")
        trial.equal("descriptors left", served.descriptors - descriptors, 0)
        trial.equal("speeches left", (await served.ask("state"))["speeches"], 0)


async def _fuzz(port: int, todo, seed: int) -> int:
    """Connections one after another. Returns how many could not be made."""
    lost = 0
    for number in todo:
        chance = random.Random(seed * 1_000_003 + number)
        try:
            await _one(port, chance)
        except OSError:
            lost += 1
    return lost


async def _one(port: int, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    bad_request = chance.random() < 0.2
    request = _spoilt_request(chance) if bad_request else upgrade()
    _, wire = await loop.create_connection(lambda: RawWebSocket(request), "127.0.0.1", port)
    if chance.random() < 0.8:  # the others do not wait for the answer
        await asyncio.wait([wire.answered], timeout=PATIENCE_S)
    for piece in _pieces(chance, _bytes(chance)):
        if wire.closed.done():
            break
        wire.transport.write(piece)
        await asyncio.sleep(0)
    await asyncio.wait([wire.closed], timeout=PATIENCE_S * chance.random())
    wire.abort()


def _spoilt_request(chance: random.Random) -> bytes:
    request = bytearray(upgrade())
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


def _bytes(chance: random.Random) -> bytes:
    """A few frames, of which some cannot be."""
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
            case 4:  # without a mask
                parts.append(bytes((0x81, min(125, len(payload)))) + payload[:125])
            case 5:  # a length that is no length
                parts.append(b"\x81\xff" + chance.randbytes(8) + bytes(4))
            case 6:  # a close with a code that is none
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
