"""A plain HTTP request as a socket: the session's audio becomes the body of the response, as fast as it is read."""
# TODO-DOC Speech over plain HTTP: one session with one utterance for each request.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from voxgate.pipeline.errors import VoxgateError

from ..messages import ErrorMessage
from ..observability.events import Observer
from ..protocols.one_shot import OneShotProtocol
from ..protocols.reply import Reply
from ..transport.connection import SocketClosed
from ..transport.sessions import Sessions
from .application import CALLER

_UNHELD = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies in between pass the audio on as it comes."""


class HttpStream:
    """Satisfies `websocket.Socket`. Nothing is answered before the first byte of the body is there."""

    def __init__(self, request: web.Request, content_type: str) -> None:
        self.response = web.StreamResponse(headers={"Content-Type": content_type, **_UNHELD})
        self.close_code: int | None = None
        self._request = request
        self._writer: AbstractStreamWriter | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        self._closed = asyncio.Event()

    @property
    def begun(self) -> bool:
        """The status was sent: an error can only cut the body short now."""
        return self.response.prepared

    async def receive(self) -> str | bytes:
        """Nothing follows the request; its end is the handler's cancellation."""
        await self._closed.wait()
        raise SocketClosed

    def send(self, message: str | bytes) -> None:
        if self._closed.is_set():
            raise SocketClosed
        self._waiting.append(message.encode() if isinstance(message, str) else message)

    @property
    def blocked(self) -> bool:
        return bool(self._waiting) or self._request.protocol.writing_paused

    async def wait_writable(self) -> None:
        # A task of its own: the library's wait for the client cannot be begun again once it was cancelled.
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
            self._flushing.add_done_callback(_retrieved)
        try:
            await asyncio.shield(self._flushing)
        except ConnectionError:
            raise SocketClosed from None

    async def _flush(self) -> None:
        if self._writer is None:
            self._writer = await self.response.prepare(self._request)
            assert self._writer is not None
        chunk = b"".join(self._waiting)
        self._waiting.clear()
        await self._writer.write(chunk)
        await self._writer.drain()  # a write alone waits only now and then

    def probe(self, on_read: Callable[[], None]) -> None:
        """Nothing of HTTP tells more than a write that waits."""
        on_read()

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:  # noqa: ARG002 - the interface's signature
        self.close_code = code
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while self._waiting:
                        await self.wait_writable()
        finally:
            self._closed.set()

    def abandon(self) -> None:
        """Wait for the client no longer."""
        if self._flushing is not None:
            self._flushing.cancel()

    def cut(self) -> None:
        """Break the connection off: the client must not take what it has for the whole."""
        if self._request.transport is not None:
            self._request.transport.abort()


def _retrieved(task: asyncio.Task[None]) -> None:
    """Whoever waited for it may be gone: then nobody needs to know how it ended."""
    if not task.cancelled():
        task.exception()


class HttpSpeech:
    """Answers requests from sessions that queue, pace, drain and fail as those of sockets do."""

    def __init__(self, sessions: Sessions, observer: Observer) -> None:
        self._sessions = sessions
        self._observer = observer

    async def answer(
        self, request: web.Request, speech: OneShotProtocol, refuse: Callable[[ErrorMessage], Reply]
    ) -> web.StreamResponse:
        """Speak; cancelling it frees the slot at once. Raises Draining, AtCapacity, KeyLimit before it begins."""
        stream = HttpStream(request, speech.body.content_type)
        try:
            place = self._sessions.reserve_slot(request[CALLER])
        except VoxgateError as error:
            self._observer.handshake_refused(error.code)
            raise
        try:
            await self._sessions.run(stream, place, speech)
        finally:
            stream.abandon()
        if speech.failed is not None:
            if not stream.begun:
                return refuse(speech.failed).response()
            stream.cut()
        return stream.response
