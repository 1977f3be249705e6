"""A client that holds utterances, and what it has received."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fakes.gateway.websocket import FakeSocket
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.observability.events import Observer, UtteranceRecord

TEXT = "The quick brown fox jumps over the lazy dog. " * 3
OTHER = "And here it is."
RATE_HZ = 24_000
PACKET_SAMPLES = 1920


def hold(socket: FakeSocket, name: str = "a", hold_ms: int = 10_000, **fields: Any) -> None:
    """Sends an interrupt that keeps the utterance."""
    socket.put(type="interrupt", utterance=name, hold_ms=hold_ms, **fields)


def audio_behind(socket: FakeSocket, kind: str, count: int = 1) -> list[tuple[AudioHeader, bytes]]:
    """Returns the audio messages behind the `count`th control message of that type."""
    message = socket.of(kind)[count - 1]
    at = next(i for i, raw in enumerate(socket.sent) if isinstance(raw, str) and socket_json(raw) == message)
    return [AudioHeader.unpack(raw) for raw in socket.sent[at:] if isinstance(raw, bytes)]


def socket_json(raw: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(raw)
    return found


def received(socket: FakeSocket) -> list[tuple[AudioHeader, bytes]]:
    """Returns the audio in the order of its numbers; what was sent twice has to be the same both times."""
    packets: dict[int, tuple[AudioHeader, bytes]] = {}
    for header, payload in socket.audio():
        assert packets.setdefault(header.seq, (header, payload)) == (header, payload), "sent again, and changed"
    assert sorted(packets) == list(range(len(packets))), "a message is missing"
    return [packets[seq] for seq in sorted(packets)]


def spoken(socket: FakeSocket) -> bytes:
    return b"".join(payload for _, payload in received(socket))


class Ends(Observer):
    """Keeps the records of utterances."""

    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self.records.append(record)


def now_s() -> float:
    return asyncio.get_running_loop().time()
