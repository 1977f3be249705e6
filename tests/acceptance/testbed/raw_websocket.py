"""A WebSocket client without a library: cheap enough for a thousand in one process, and free to break the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fakes.waiting import DEADLINE_S

from .expected_audio import ReceivedUtterance

PATH = "/v1/speech"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MESSAGE_ERRORS = ("bad_message", "text_too_long", "rate_limited")
"""Errors that refuse one message and leave its utterance as it is."""


def upgrade_request(host: str = "127.0.0.1", path: str = PATH, headers: tuple[str, ...] = ()) -> bytes:
    """The request of a handshake."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        *headers,
    ]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def frame(opcode: int, payload: bytes, *, last: bool = True) -> bytes:
    """A client's frame, masked with zeros."""
    first, size = opcode | (0x80 if last else 0), len(payload)
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65_536:
        head = bytes((first, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0xFF)) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


class RawWebSocket(asyncio.Protocol):
    """One connection. `answered` gives the status of the handshake, 0 when the connection was lost before.

    `closed` gives the close code: 1006 when the gateway closed the connection without a close frame.
    """

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = loop.time
        self.answered: asyncio.Future[int] = loop.create_future()
        self.closed: asyncio.Future[int] = loop.create_future()
        self.close_code = 1006
        self.closed_s = 0.0
        self.head = ""
        self.body = b""
        """Of a handshake that was refused."""
        self.transport: asyncio.Transport
        self._request = request
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's own class, with the same methods
        self.transport.write(self._request)

    def connection_lost(self, _: Exception | None) -> None:
        self.closed_s = self.now()
        if not self.answered.done():
            self.answered.set_result(0)
        if not self.closed.done():
            self.closed.set_result(self.close_code)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.answered.done() and not self._take_head():
            return
        if self.answered.result() != 101:
            self.body = bytes(self._buffer)
            return
        while (taken := self._take_frame()) is not None:
            self._take(*taken)

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.head = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 4]
        self.answered.set_result(int(self.head.split(" ", 2)[1]))
        return True

    def _take_frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, at = buffer[1], 2
        if size == 126:
            size, at = int.from_bytes(buffer[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(buffer[2:10], "big"), 10
        if len(buffer) < at + size:
            return None
        opcode, payload = buffer[0] & 0x0F, bytes(buffer[at : at + size])
        del buffer[: at + size]
        return opcode, payload

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == BINARY:
            self.take_audio(payload)
        elif opcode == TEXT:
            self.take_message(json.loads(payload))
        elif opcode == PING:
            self.transport.write(frame(PONG, payload))
        elif opcode == CLOSE:
            self.close_code = int.from_bytes(payload[:2], "big") or 1005
            self.transport.write(frame(CLOSE, payload))
            self.transport.close()

    def take_audio(self, payload: bytes) -> None:
        """Called with each binary message."""

    def take_message(self, message: dict[str, Any]) -> None:
        """Called with each control message."""

    def send(self, **fields: Any) -> None:
        """Send a message."""
        self.send_all([fields])

    def send_all(self, messages: Iterable[dict[str, Any]]) -> None:
        """Send messages in one write."""
        self.transport.write(b"".join(frame(TEXT, json.dumps(message).encode()) for message in messages))

    def abort(self) -> None:
        """Reset the connection."""
        self.transport.abort()

    async def close(self) -> None:
        """Close with 1000 and wait for the answer. Raises TimeoutError."""
        self.transport.write(frame(CLOSE, (1000).to_bytes(2, "big")))
        async with asyncio.timeout(DEADLINE_S):
            await self.closed


class RawClient(RawWebSocket):
    """A native session. `say` asks for an utterance and returns a `ReceivedUtterance`, which fills as audio comes."""

    def __init__(self, request: bytes) -> None:
        super().__init__(request)
        self.received: dict[str, ReceivedUtterance] = {}
        self.messages: list[dict[str, Any]] = []
        """Control messages that name no utterance."""
        self._by_number: dict[int, ReceivedUtterance] = {}

    def say(
        self,
        text: str,
        *,
        name: str = "a",
        seed: int = 7,
        codec: str = "pcm",
        pacing: str = "playback",
        end: bool = True,
        asked_s: float | None = None,
    ) -> ReceivedUtterance:
        """Ask for a whole utterance at once; without `end` its text stays open."""
        received = ReceivedUtterance(text, seed, codec, self.now() if asked_s is None else asked_s)
        self.received[name] = received
        start = {"type": "start", "utterance": name, "format": {"codec": codec}, "seed": seed, "pacing": pacing}
        messages = [start, {"type": "text", "utterance": name, "text": text}]
        if end:
            messages.append({"type": "end", "utterance": name})
        self.send_all(messages)
        return received

    def take_audio(self, payload: bytes) -> None:
        number = int.from_bytes(payload[4:8], "little")
        if (received := self._by_number.get(number)) is not None:
            received.take(payload, self.now())

    def take_message(self, message: dict[str, Any]) -> None:
        received = self.received.get(message.get("utterance", ""))
        kind = message["type"]
        if received is None:
            self.messages.append(message)
        elif kind == "started":
            received.started_s = self.now()
            self._by_number[message["number"]] = received
        elif kind == "continued":
            received.rewind(message["seq"])
        elif kind in ("done", "interrupted") and "hold_ms" not in message:
            received.finish(kind, self.now(), message)
        elif kind == "error" and message["code"] not in MESSAGE_ERRORS:
            received.finish(message["code"], self.now(), message)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for received in self.received.values():
            received.finish("lost", self.now())


Client = TypeVar("Client", bound=RawWebSocket)


async def connect(port: int, address: str | None = None) -> RawClient:
    """A session whose handshake was answered, with 101 or another status. Raises OSError, TimeoutError.

    `address`: the client's, by which the gateway knows the caller. Without one the kernel finds a free port sooner.
    """
    return await connect_as(RawClient, port, address=address)


async def connect_as(
    kind: type[Client], port: int, headers: tuple[str, ...] = (), path: str = PATH, address: str | None = None
) -> Client:
    """As `connect`, with a client of that class, further headers, or another path."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        request = upgrade_request(f"127.0.0.1:{port}", path, headers)
        local = None if address is None else (address, 0)
        _, client = await loop.create_connection(lambda: kind(request), "127.0.0.1", port, local_addr=local)
        await client.answered
    return client


async def connect_many(port: int, count: int, at_once: int = 50) -> list[RawClient]:
    """`count` sessions, `at_once` handshakes at a time."""
    opened: list[RawClient] = []
    while len(opened) < count:
        opened += await asyncio.gather(*(connect(port) for _ in range(min(at_once, count - len(opened)))))
    assert all(client.answered.result() == 101 for client in opened), "a handshake was refused"
    return opened
