"""A TCP proxy on loopback whose connections can be cut, or stop passing anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

READ_BYTES = 65_536


class CutProxy:
    """Passes connections on to `target_port`."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self._target_port = target_port
        self._pipes: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = {}
        self._passing = asyncio.Event()
        self._passing.set()

    def redirect(self, target_port: int) -> None:
        """Passes new connections on to another port."""
        self._target_port = target_port

    def cut(self, first: int | None = None) -> None:
        """Resets every connection at both ends, or the `first` ones."""
        for ends in tuple(self._pipes.values())[:first]:
            for end in ends:
                end.transport.abort()

    def stop(self) -> None:
        """Passes nothing more, and accepts no data of new connections; neither end is notified."""
        self._passing.clear()
        for ends in self._pipes.values():
            for end in ends:
                end.transport.pause_reading()  # kernel buffers fill up, as on a dead link

    def go_on(self, *, forget: bool) -> None:
        """Passes data again; with `forget`, connections from before stay dead."""
        self._passing.set()
        for ends in () if forget else self._pipes.values():
            for end in ends:
                end.transport.resume_reading()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        await self._passing.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._pipes[task] = (writer, far_writer)
        try:
            async with asyncio.TaskGroup() as pipes:
                pipes.create_task(_pipe(reader, far_writer))
                pipes.create_task(_pipe(far_reader, writer))
        except* (OSError, EOFError, asyncio.CancelledError):  # asyncio's streams would report the latter
            pass
        finally:
            del self._pipes[task]
            for end in (writer, far_writer):
                end.transport.abort()

    async def close(self) -> None:
        for task in tuple(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
    raise EOFError


@asynccontextmanager
async def cut_proxy(target_port: int) -> AsyncIterator[CutProxy]:
    """Runs a proxy in front of `target_port`."""
    proxy = CutProxy(target_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        with contextlib.suppress(asyncio.CancelledError):
            await proxy.close()
