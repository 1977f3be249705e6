"""The socket between the speech process and a worker: typed messages, those of a turn of the loop in one write."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

import msgspec
from voxgate.pipeline.ipc.engine_messages import Message

from .messages import Answer, Ask

MAX_BACKLOG_BYTES = 8 << 20
"""The other side takes microseconds for a message; one that leaves so much has gone astray."""
_LENGTH = struct.Struct("<I")

T = TypeVar("T", bound=Message)

log = logging.getLogger(__name__)


class LinkClosed(Exception):
    """The other process is gone, or is taken for that."""


def pack(messages: list[Message]) -> bytes:
    """A batch as it goes over the socket."""
    body = msgspec.msgpack.encode(messages)
    return _LENGTH.pack(len(body)) + body


class BatchReader(Generic[T]):
    """Reads batches out of a stream of bytes that comes in any pieces. Raises ValueError for what is none."""

    def __init__(self, kinds: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[kinds])
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[T]:
        self._buffer += data
        messages: list[T] = []
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if end > MAX_BACKLOG_BYTES:
                raise ValueError(f"a batch of {end} bytes")
            if len(self._buffer) < end:
                break
            try:
                messages += self._decoder.decode(memoryview(self._buffer)[_LENGTH.size : end])
            except msgspec.MsgspecError as error:
                raise ValueError(f"a batch cannot be read: {error}") from error
            del self._buffer[:end]
        return messages


class Link(asyncio.Protocol, Generic[T]):
    """`take` gets each message; `answer` is asked what the other side asks; `gone` is called when it is no more."""

    def __init__(
        self,
        kinds: Any,
        take: Callable[[T], None],
        answer: Callable[[str], Awaitable[bytes]],
        gone: Callable[[], None],
    ) -> None:
        self._batches: BatchReader[T | Ask | Answer] = BatchReader(kinds)
        self._take, self._answer, self._gone = take, answer, gone
        self._out: list[Message] = []
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None

    async def open(self, sock: socket.socket) -> None:
        """Speak over one end of a socket pair."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=sock)

    def send(self, message: Message) -> None:
        """Send it at the end of this turn of the loop; into the void when the other side is gone."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(message)

    async def ask(self, what: str, timeout_s: float) -> bytes:
        """The other side's answer. Raises LinkClosed, TimeoutError."""
        if self._transport is None:
            raise LinkClosed
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(Ask(number, what))
        try:
            return await asyncio.wait_for(answer, timeout_s)
        finally:
            del self._asked[number]

    def close(self) -> None:
        """Send what is left, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(pack(out))
            if self._transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
                log.error("the process at the other end reads nothing")
                self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._batches.feed(data)
        except ValueError:
            log.exception("the process at the other end says what cannot be read")
            assert self._transport is not None
            self._transport.abort()
            return
        for message in messages:
            if isinstance(message, Ask):
                task = asyncio.get_running_loop().create_task(self._reply(message))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            elif isinstance(message, Answer):
                if (asked := self._asked.get(message.number)) is not None and not asked.done():
                    asked.set_result(message.content)
            else:
                self._take(message)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(LinkClosed())
        self._gone()

    async def _reply(self, question: Ask) -> None:
        try:
            self.send(Answer(question.number, await self._answer(question.what)))
        except Exception:
            log.exception("a question could not be answered", extra={"question": question.what})
