"""The gateway's WebSocket on a transport in memory, after its handshake: for tests of frames in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from voxgate.gateway.transport.connection_pool import ConnectionPool
from voxgate.gateway.transport.turn_budget import TURN_STEPS, TurnBudget
from voxgate.gateway.transport.websocket import BoundedConnection
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.uri import parse_uri


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; `buffered` is the size of its write buffer, `lose` ends the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.buffered = 0
        self.aborted_s: float | None = None
        self.reads = True
        self.protocol: BoundedConnection
        self._lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 50_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._lost

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        if not self._lost:
            self.aborted_s = asyncio.get_running_loop().time()
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """Ends the connection, with `error` if the network ended it."""
        if not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


class _Server:
    def __init__(self) -> None:
        self.handler_tasks: set[asyncio.Task[None]] = set()

    async def handler(self, connection: BoundedConnection) -> None:
        pass

    def is_serving(self) -> bool:
        return True


async def open_websocket(max_size: int = 65_536, **options: Any) -> tuple[BoundedConnection, MemoryTransport]:
    """Returns an open WebSocket of the gateway and its transport."""
    client = ClientProtocol(parse_uri("ws://localhost/v1/speech"))
    client.send_request(client.connect())
    transport = MemoryTransport()
    server: Any = _Server()
    place = ConnectionPool(1, 60.0).add(transport)
    place.serve()
    options = {
        "place": place,
        "budget": TurnBudget(TURN_STEPS),
        "write_timeout_s": 60.0,
        "frames_per_s": 800.0,
        **options,
    }
    connection = BoundedConnection(ServerProtocol(max_size=max_size), server, **options)
    transport.protocol = connection
    connection.connection_made(transport)
    connection.data_received(b"".join(client.data_to_send()))
    await connection.handshake()
    transport.written = b""
    return connection, transport


def client_frame(opcode: Opcode, payload: bytes = b"") -> bytes:
    """A masked frame of a client."""
    return Frame(opcode, payload).serialize(mask=True)
