"""The socket between the speech process and a worker: typed messages, batched per turn of the event loop.

Messages that a first sample waits for (`messages.URGENT`) are sent at once, together with those before them: a turn may
have milliseconds of other work left, such as the rest of the text of the utterance itself.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import msgspec
from voxgate.pipeline.ipc.engine_messages import Message

from .messages import URGENT, Answer, Ask

MAX_BACKLOG_BYTES = 8 << 20
"""Unsent bytes, and bytes of a batch, at which the link is closed. Messages take microseconds to process."""
_LENGTH = struct.Struct("<I")

T = TypeVar("T", bound=Message)

log = logging.getLogger(__name__)


class LinkClosed(Exception):
    """The other process has ended, or its link was closed."""


def pack_batch(messages: list[Message]) -> bytes:
    """Encodes a batch: its length in bytes as uint32, then MessagePack."""
    body = msgspec.msgpack.encode(messages)
    return _LENGTH.pack(len(body)) + body


class BatchReader(Generic[T]):
    """Decodes batches from a stream of bytes in any pieces. Raises ValueError for malformed ones."""

    def __init__(self, kinds: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[kinds])
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[T]:
        """The messages completed by `data`."""
        self._buffer += data
        messages: list[T] = []
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if end > MAX_BACKLOG_BYTES:
                raise ValueError(f"batch of {end} bytes exceeds {MAX_BACKLOG_BYTES}")
            if len(self._buffer) < end:
                break
            try:
                messages += self._decoder.decode(memoryview(self._buffer)[_LENGTH.size : end])
            except msgspec.MsgspecError as error:
                raise ValueError(f"malformed batch: {error}") from error
            del self._buffer[:end]
        return messages


class Link(asyncio.Protocol, Generic[T]):
    """One end of the link.

    `on_message` gets each message, `answer` answers questions of the other side, `on_lost` is called at the end.
    """

    def __init__(
        self,
        kinds: Any,
        on_message: Callable[[T], None],
        answer: Callable[[str], Awaitable[bytes]],
        on_lost: Callable[[], None],
    ) -> None:
        self._batches: BatchReader[T | Ask | Answer] = BatchReader(kinds)
        self._on_message, self._answer, self._on_lost = on_message, answer, on_lost
        self._out: list[Message] = []
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        """Of the transport."""

    async def open(self, sock: socket.socket) -> None:
        """Opens the link on one end of a socket pair."""
        self._socket = sock
        await asyncio.get_running_loop().create_connection(lambda: self, sock=sock)

    def send(self, message: Message) -> None:
        """Sends a message, at the latest at the end of this turn of the event loop, and in the order of the calls.

        Discards it when the link is closed.
        """
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(message)
        if isinstance(message, URGENT):
            self._flush()

    async def ask(self, what: str, timeout_s: float) -> bytes:
        """Sends a question and returns the answer of the other side. Raises LinkClosed, TimeoutError."""
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
        """Sends what is left, then closes."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._write(pack_batch(out))
            if self._transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
                log.error("closing worker link: the other process does not read")
                self._transport.abort()

    def _write(self, batch: bytes) -> None:
        """Writes now what the socket takes: uvloop writes at the end of the turn only."""
        assert self._transport is not None  # callers check it
        assert self._socket is not None  # set with it
        sent = 0
        if not (self._transport.is_closing() or self._transport.get_write_buffer_size()):
            # An error of the socket concerns the transport, which closes the link.
            with suppress(OSError):
                sent = self._socket.send(batch, socket.MSG_DONTWAIT)
        if sent < len(batch):
            self._transport.write(batch[sent:])

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._batches.feed(data)
        except ValueError:
            log.exception("closing worker link: malformed message")
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
                self._on_message(message)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(LinkClosed())
        self._on_lost()

    async def _reply(self, question: Ask) -> None:
        try:
            self.send(Answer(question.number, await self._answer(question.what)))
        except Exception:
            log.exception("answering a question failed", extra={"question": question.what})
