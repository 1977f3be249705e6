"""Reads are limited to one buffer per turn of the event loop, and no data is lost."""

from __future__ import annotations

import asyncio

from fakes.virtual_time import run
from voxgate.gateway.transport.buffer_limits import READ_SIZE_BYTES, ReadSizeLimit


class Transport(asyncio.Transport):
    """Holds received data as the kernel would, and delivers it only while reading is not paused."""

    def __init__(self, waiting: bytes) -> None:
        super().__init__()
        self.waiting = waiting
        self.reads = True

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return False

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


def test_each_turn_reads_at_most_one_buffer() -> None:
    async def scene() -> None:
        data = bytes(range(256)) * 20
        transport, receiver = Transport(data), Receiver()
        limit = ReadSizeLimit(receiver)
        limit.connection_made(transport)
        while transport.waiting:
            assert transport.feed(limit) <= READ_SIZE_BYTES
            await asyncio.sleep(0)
        assert receiver.received == data

    run(scene())


def test_pause_by_the_inner_protocol_is_kept() -> None:
    async def scene() -> None:
        transport, receiver = Transport(bytes(10 * READ_SIZE_BYTES)), Receiver(pause_at=READ_SIZE_BYTES)
        limit = ReadSizeLimit(receiver)
        limit.connection_made(transport)
        for _ in range(5):
            transport.feed(limit)
            await asyncio.sleep(0)
        assert len(receiver.received) == READ_SIZE_BYTES

    run(scene())


def test_slice_of_the_buffer_is_no_copy() -> None:
    """asyncio fills the buffer through slices when it decrypts TLS."""
    received = Receiver()
    limit = ReadSizeLimit(received)
    buffer = limit.get_buffer(-1)
    buffer[:3] = b"one"
    rest = buffer[3:]
    rest[:3] = b"two"
    limit.buffer_updated(6)
    assert received.received == b"onetwo"
