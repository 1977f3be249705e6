"""Speech over plain HTTP: one session with one utterance per request, whose audio is the body of the response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from voxgate.pipeline.errors import VoxgateError

from ..access.caller import Grant
from ..observability.events import Observer
from ..protocols.endpoint import EndpointRequest, SpeechEndpoint
from ..session.utterance_factory import UtteranceFactory
from ..transport.connection import SocketClosed
from ..transport.sessions import ConnectionSlot, Sessions
from .application import GRANT, RouteGroup, read_json, to_response

_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers that make proxies pass audio on as it arrives."""


class HttpStream:
    """A `transport.connection.Socket` whose messages are the body of an HTTP response.

    The status is sent with the first byte of the body, so that an earlier error can still change it.
    """

    def __init__(self, request: web.Request, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        self.response = web.StreamResponse(headers={"Content-Type": content_type, **_UNBUFFERED, **(headers or {})})
        self.close_code: int | None = None
        self._request = request
        self._writer: AbstractStreamWriter | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        self._closed = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether the status was sent; from then on an error can only cut the body."""
        return self.response.prepared

    async def receive(self) -> str | bytes:
        """Waits until the stream is closed: a request has no further messages. Raises SocketClosed."""
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
        # A separate task, because the library's wait for the client cannot be restarted after a cancellation.
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
            self._flushing.add_done_callback(_retrieve_exception)
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
        await self._writer.drain()  # a write alone does not wait for the client

    def probe(self, on_read: Callable[[], None]) -> None:
        """Calls `on_read` at once: HTTP has no confirmation but a write that completes."""
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
        """Stops waiting for the client."""
        if self._flushing is not None:
            self._flushing.cancel()

    def cut(self) -> None:
        """Aborts the connection, so that the client does not take the body for complete."""
        if self._request.transport is not None:
            self._request.transport.abort()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Marks the exception as retrieved: the waiting connection may have been cancelled."""
    if not task.cancelled():
        task.exception()


class SpeechRoutes:
    """Answers POST requests through sessions, which queue, pace, drain and fail like those of sockets."""

    def __init__(self, factory: UtteranceFactory, sessions: Sessions, observer: Observer) -> None:
        self._factory = factory
        self._sessions = sessions
        self._observer = observer

    def groups(self, endpoints: Iterable[SpeechEndpoint[Any]]) -> list[RouteGroup]:
        """One route per endpoint, each with the endpoint's shape of errors."""
        return [RouteGroup(endpoint.requires, [self._route(endpoint)], endpoint.refuse) for endpoint in endpoints]

    def _route(self, endpoint: SpeechEndpoint[Any]) -> web.RouteDef:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, endpoint)

        return web.post(endpoint.pattern, handler)

    async def _answer(self, request: web.Request, endpoint: SpeechEndpoint[Any]) -> web.StreamResponse:
        """Speaks. Cancellation frees the slot at once.

        Raises VoxgateError of the endpoint, and Draining, AtCapacity or KeyLimit, before speech begins.
        """
        # The slot comes first: it bounds the bodies that are read at once, of all clients and of each.
        slot = self._reserve_slot(request[GRANT])
        try:
            body = await read_json(request, endpoint.body)
            asked = EndpointRequest(request.match_info, dict(request.query), request.headers)
            speech = endpoint.open(asked, body, self._factory.for_key(slot.grant.key))
            stream = HttpStream(request, speech.body.content_type, speech.headers)
            try:
                await self._sessions.run(stream, slot, speech)
            finally:
                stream.abandon()
        finally:
            slot.release()
        if speech.error is not None:
            if not stream.begun:
                return to_response(endpoint.refuse(speech.error))
            stream.cut()
        return stream.response

    def _reserve_slot(self, grant: Grant) -> ConnectionSlot:
        try:
            return self._sessions.reserve_slot(grant)
        except VoxgateError as error:
            self._observer.handshake_refused(error.code, error.reached)
            raise
