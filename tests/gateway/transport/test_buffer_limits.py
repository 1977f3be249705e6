"""All connections together read a bounded number of bytes per turn of the event loop, and no data is lost."""

from __future__ import annotations

import asyncio

from fakes.virtual_time import run, settle
from voxgate.gateway.transport.buffer_limits import LEAST_BYTES, READ_SIZE_BYTES, ReadSizeLimit
from voxgate.gateway.transport.turn_budget import TURN_BYTES, TurnBudget


class Transport(asyncio.Transport):
    """Holds received data as the kernel would, and delivers it only while reading is not paused."""

    def __init__(self, waiting: bytes) -> None:
        super().__init__()
        self.waiting = waiting
        self.reads = True
        self.closing = False

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def feed(self, protocol: asyncio.BufferedProtocol) -> int:
        """Delivers what can be read in one turn; returns its length in bytes."""
        before = len(self.waiting)
        while self.reads and self.waiting:
            buffer = protocol.get_buffer(-1)
            taken = min(len(buffer), len(self.waiting))
            buffer[:taken] = self.waiting[:taken]
            self.waiting = self.waiting[taken:]
            protocol.buffer_updated(taken)
        return before - len(self.waiting)


class Receiver(asyncio.Protocol):
    def __init__(self, pause_at: int | None = None) -> None:
        self.received = b""
        self.pause_at = pause_at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.pause_at is not None and len(self.received) >= self.pause_at:
            assert isinstance(self.transport, Transport)
            self.transport.pause_reading()


def connect(count: int, data: bytes, pause_at: int | None = None) -> list[tuple[Transport, Receiver, ReadSizeLimit]]:
    """Connections with `data` to read, which share one budget."""
    budget, connections = TurnBudget(TURN_BYTES), []
    for _ in range(count):
        transport, receiver = Transport(data), Receiver(pause_at)
        limit = ReadSizeLimit(receiver, budget, lambda: "alice")
        limit.connection_made(transport)
        connections.append((transport, receiver, limit))
    return connections


def test_all_connections_together_parse_at_most_the_budget_of_a_turn() -> None:
    async def scene() -> None:
        data = bytes(range(256)) * 20
        connections = connect(10, data)
        parsed = 0
        while any(receiver.received != data for _, receiver, _ in connections):
            for transport, _, limit in connections:
                transport.feed(limit)
            await asyncio.sleep(0)
            before, parsed = parsed, sum(len(receiver.received) for _, receiver, _ in connections)
            assert 0 < parsed - before < 2 * (TURN_BYTES + READ_SIZE_BYTES)

    run(scene())


def test_connections_that_wait_for_the_budget_take_turns() -> None:
    async def scene() -> None:
        connections = connect(10, bytes(20 * READ_SIZE_BYTES))
        while any(transport.waiting for transport, _, _ in connections):
            for transport, _, limit in connections:
                transport.feed(limit)
            await asyncio.sleep(0)
            read = [len(receiver.received) for _, receiver, _ in connections]
            assert max(read) - min(read) <= 3 * READ_SIZE_BYTES

    run(scene())


def test_connection_lost_while_it_waits_for_the_budget_gets_nothing_more() -> None:
    async def scene() -> None:
        connections = connect(5, bytes(READ_SIZE_BYTES))
        for transport, _, limit in connections:
            transport.feed(limit)
        waiting = [connection for connection in connections if not connection[0].reads]
        for transport, _, _ in waiting:
            transport.closing = True
        await settle()
        assert len(waiting) == 3
        assert all(receiver.received == b"" for _, receiver, _ in waiting)

    run(scene())


def test_pause_by_the_inner_protocol_is_kept() -> None:
    async def scene() -> None:
        ((transport, receiver, limit),) = connect(1, bytes(10 * READ_SIZE_BYTES), pause_at=READ_SIZE_BYTES)
        for _ in range(5):
            transport.feed(limit)
            await asyncio.sleep(0)
        assert len(receiver.received) == READ_SIZE_BYTES

    run(scene())


def test_slice_of_the_buffer_is_no_copy() -> None:
    """asyncio fills the buffer through slices when it decrypts TLS."""

    async def scene() -> None:
        received = Receiver()
        limit = ReadSizeLimit(received, TurnBudget(TURN_BYTES), lambda: "alice")
        buffer = limit.get_buffer(-1)
        buffer[:3] = b"one"
        rest = buffer[3:]
        rest[:3] = b"two"
        limit.buffer_updated(6)
        assert received.received == b"onetwo"

    run(scene())


def test_reads_of_few_bytes_are_limited_in_number() -> None:
    """What follows a read takes time however short it was."""

    async def scene() -> None:
        count, in_turn = 200, TURN_BYTES // LEAST_BYTES
        connections = connect(count, b"x")
        parsed = 0
        while parsed < count:
            for transport, _, limit in connections:
                transport.feed(limit)
            await asyncio.sleep(0)
            before, parsed = parsed, sum(receiver.received == b"x" for _, receiver, _ in connections)
            assert 0 < parsed - before <= 2 * in_turn

    run(scene())
