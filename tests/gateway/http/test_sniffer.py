"""Who gets a connection, by the head of its first request; no network, virtual time."""

from __future__ import annotations

import asyncio

import pytest
from fakes.virtual_time import run
from voxgate.gateway.http.sniffer import MAX_HEAD_BYTES, ProtocolSniffer

PLAIN = b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
SOCKET = b"GET /v1/speech HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUPGRADE: WebSocket\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol | None = None
        self.written = b""
        self.closed = ""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed = "closed"

    def abort(self) -> None:
        self.closed = "aborted"


class Server(asyncio.Protocol):
    def __init__(self, name: str) -> None:
        self.name = name
        self.received = b""
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.received += data


def arrive(transport: Transport, *, full: bool = False) -> ProtocolSniffer:
    doorstep = ProtocolSniffer(lambda: Server("websocket"), lambda: None if full else Server("http"), 5)
    doorstep.connection_made(transport)
    return doorstep


@pytest.mark.parametrize(("request_bytes", "name"), [(PLAIN, "http"), (SOCKET, "websocket")])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_head_in_any_pieces_reaches_its_server_complete(request_bytes: bytes, name: str, piece: int) -> None:
    async def scene() -> None:
        transport = Transport()
        receiver: asyncio.Protocol
        doorstep = arrive(transport)
        for at in range(0, len(request_bytes), piece):
            receiver = transport.protocol if isinstance(transport.protocol, Server) else doorstep
            receiver.data_received(request_bytes[at : at + piece])
        server = transport.protocol
        assert isinstance(server, Server)
        assert (server.name, server.received, server.transport) == (name, request_bytes, transport)
        assert transport.written == b""

    run(scene())


@pytest.mark.parametrize(
    "head",
    [
        b"GET /?upgrade:websocket HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: Upgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 22\r\n\r\nUpgrade: websocket\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_other_requests_are_plain_http(head: bytes) -> None:
    async def scene() -> None:
        transport = Transport()
        arrive(transport).data_received(head)
        assert isinstance(transport.protocol, Server)
        assert transport.protocol.name == "http"

    run(scene())


def test_incomplete_head_is_aborted() -> None:
    async def scene() -> None:
        transport = Transport()
        doorstep = arrive(transport)
        for _ in range(4):
            doorstep.data_received(b"GET / ")
            await asyncio.sleep(1)
        assert transport.closed == ""
        await asyncio.sleep(1.1)
        assert transport.closed == "aborted"

    run(scene())


def test_deadline_ends_with_the_hand_over() -> None:
    async def scene() -> None:
        transport = Transport()
        arrive(transport).data_received(PLAIN)
        await asyncio.sleep(10)
        assert transport.closed == ""

    run(scene())


def test_a_long_head_is_refused() -> None:
    async def scene() -> None:
        transport = Transport()
        arrive(transport).data_received(b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES)
        assert transport.written.startswith(b"HTTP/1.1 431 ")
        assert transport.closed == "closed"
        assert transport.protocol is None

    run(scene())


def test_connection_above_the_limit_gets_503() -> None:
    async def scene() -> None:
        transport = Transport()
        arrive(transport, full=True).data_received(PLAIN)
        assert transport.written.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After" in transport.written
        assert transport.closed == "closed"

    run(scene())


def test_frames_before_the_handshake_answer_are_refused() -> None:
    async def scene() -> None:
        transport = Transport()
        arrive(transport).data_received(SOCKET + b"\x81\x80\x00\x00\x00\x00")
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.closed
        assert transport.protocol is None

    run(scene())
