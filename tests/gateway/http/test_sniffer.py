"""Who gets a connection, by the head of its first request; no network, virtual time."""

from __future__ import annotations

import asyncio

import pytest
from fakes.virtual_time import run, turns
from voxgate.gateway.http.sniffer import FIRST_REQUEST_BYTES, MAX_HEAD_BYTES, ProtocolSniffer, ServerFactory
from voxgate.gateway.transport.connection_pool import ConnectionPlace, ConnectionPool
from voxgate.gateway.transport.turn_budget import TURN_BYTES, TurnBudget

DEADLINE_S = 5.0
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

    def is_closing(self) -> bool:
        return bool(self.closed)

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


def serve(name: str) -> ServerFactory:
    def make(place: ConnectionPlace) -> Server:
        place.serve()
        return Server(name)

    return make


def arrive(
    transport: Transport, pool: ConnectionPool | None = None, budget: TurnBudget | None = None
) -> ProtocolSniffer:
    pool, budget = pool or ConnectionPool(10, DEADLINE_S), budget or TurnBudget(TURN_BYTES)
    sniffer = ProtocolSniffer(pool, serve("websocket"), serve("http"), budget)
    sniffer.connection_made(transport)
    return sniffer


@pytest.mark.parametrize(("request_bytes", "name"), [(PLAIN, "http"), (SOCKET, "websocket")])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_head_in_any_pieces_reaches_its_server_complete(request_bytes: bytes, name: str, piece: int) -> None:
    async def scene() -> None:
        transport = Transport()
        receiver: asyncio.Protocol
        sniffer = arrive(transport)
        for at in range(0, len(request_bytes), piece):
            receiver = transport.protocol if isinstance(transport.protocol, Server) else sniffer
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
        sniffer = arrive(transport)
        for _ in range(4):
            sniffer.data_received(b"GET / ")
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
        assert transport.written.endswith(b'must have at most 16384 bytes"}')
        assert transport.closed == "closed"
        assert transport.protocol is None

    run(scene())


def test_connection_above_the_limit_gets_503_and_a_probe_its_answer() -> None:
    async def scene() -> None:
        pool = ConnectionPool(1, DEADLINE_S)
        for request in (PLAIN, b"GET /healthz HTTP/1.1\r\n\r\n", b"HEAD /readyz?a HTTP/1.1\r\n\r\n"):
            transport = Transport()
            arrive(transport, pool).data_received(request)
            assert isinstance(transport.protocol, Server)
        for request in (PLAIN, SOCKET, b"GET /healthz/x HTTP/1.1\r\n\r\n", b"POST /healthz HTTP/1.1\r\n\r\n"):
            transport = Transport()
            arrive(transport, pool).data_received(request)
            assert transport.written.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After" in transport.written
            assert transport.closed == "closed"

    run(scene())


def test_connection_lost_before_its_request_leaves_the_pool() -> None:
    async def scene() -> None:
        pool = ConnectionPool(1, DEADLINE_S)
        sniffer = arrive(Transport(), pool)
        assert pool.open == 1
        sniffer.connection_lost(None)
        assert pool.open == 0

    run(scene())


def test_frames_before_the_handshake_answer_are_refused() -> None:
    async def scene() -> None:
        transport = Transport()
        arrive(transport).data_received(SOCKET + b"\x81\x80\x00\x00\x00\x00")
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.closed
        assert transport.protocol is None

    run(scene())


def test_upgrade_at_the_path_of_a_probe_takes_no_place_of_probes() -> None:
    async def scene() -> None:
        pool = ConnectionPool(1, DEADLINE_S)
        arrive(Transport(), pool).data_received(SOCKET)
        transport = Transport()
        arrive(transport, pool).data_received(SOCKET.replace(b"/v1/speech", b"/healthz"))
        assert transport.written.startswith(b"HTTP/1.1 503 ")
        assert pool.serving == 1

    run(scene())


def test_first_requests_that_arrive_at_once_are_served_a_few_in_a_turn() -> None:
    async def scene() -> None:
        budget, pool = TurnBudget(2 * FIRST_REQUEST_BYTES), ConnectionPool(10, DEADLINE_S)
        transports = [Transport() for _ in range(7)]
        for transport in transports:
            arrive(transport, pool, budget).data_received(SOCKET)
        transports[2].abort()  # while it waits
        served = []
        for _ in range(4):
            served.append(sum(transport.protocol is not None for transport in transports))
            await turns(1)
        assert served == [2, 3, 5, 6]
        assert transports[2].protocol is None

    run(scene())
