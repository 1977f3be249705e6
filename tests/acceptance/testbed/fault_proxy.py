"""A TCP proxy that adds one network fault to each connection."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

READ_BYTES = 65_536
SINGLE_BYTES = 400
"""Bytes in each direction that are sent one at a time; the rest passes as it comes, which keeps the test short."""


class Fault(StrEnum):
    LATENCY = "latency"
    """Everything arrives 20 to 200 ms late, in order."""
    SLICES = "1-byte slices"
    RESET = "reset"
    HALF_CLOSE = "half-close"
    """The client's side ends its stream and still reads."""
    SILENCE = "silence"
    """Nothing passes any more, and neither end is notified."""


class FaultProxy:
    """Passes connections to `port` on to the gateway, with one fault in each."""

    def __init__(self, target_port: int, fault: Fault, seed: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._fault = fault
        self._chance = random.Random(seed)
        self._pipes: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            async with asyncio.TaskGroup() as pipes:
                pipes.create_task(self._pipe(reader, far_writer))
                pipes.create_task(self._pipe(far_reader, writer))
                pipes.create_task(self._break(far_writer, writer))
        except* (OSError, EOFError):
            pass
        finally:
            self._pipes.discard(task)
            for end in (writer, far_writer):
                end.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        single_bytes = SINGLE_BYTES if self._fault is Fault.SLICES else 0
        while data := await reader.read(1 if single_bytes > 0 else READ_BYTES):
            single_bytes -= len(data)
            if self._fault is Fault.LATENCY:
                await asyncio.sleep(self._chance.uniform(0.02, 0.2))
            writer.write(data)
            await writer.drain()
        raise EOFError

    async def _break(self, far: asyncio.StreamWriter, near: asyncio.StreamWriter) -> None:
        """Apply the fault while speech passes."""
        await asyncio.sleep(self._chance.uniform(0.3, 1.5))
        match self._fault:
            case Fault.RESET:
                far.transport.abort()
                near.transport.abort()
            case Fault.HALF_CLOSE:
                far.write_eof()
            case Fault.SILENCE:
                # Neither end is read, so the kernel buffers fill up, as on a dead link.
                for end in (far, near):
                    end.transport.pause_reading()

    async def close(self) -> None:
        for pipe in tuple(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)


@asynccontextmanager
async def fault_proxy(target_port: int, fault: Fault, seed: int) -> AsyncIterator[FaultProxy]:
    """Runs a proxy in front of the gateway at `target_port`."""
    proxy = FaultProxy(target_port, fault, seed)
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        with contextlib.suppress(asyncio.CancelledError):
            await proxy.close()
