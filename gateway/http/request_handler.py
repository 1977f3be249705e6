"""aiohttp's handler of a connection, whose own refusals get the shape of a service. Proven with aiohttp 3.14.5."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from voxgate.pipeline.errors import BadMessage

from ..errors import QUOTED_CHARACTERS
from ..protocols.reply import Reply, ReportableError, closing_bytes

_REQUEST_LINE = re.compile(rb"([A-Z]+) ([^\s?]+)")


class RequestHandler(web.RequestHandler):
    """`refuse` answers a request for a path with an error."""

    __slots__ = ("_path", "_reads", "_refuse")

    def __init__(self, server: web.Server, refuse: Callable[[str, ReportableError], Reply], **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._refuse, self._path, self._reads = refuse, "", False

    @property
    def answers_get(self) -> bool:
        """Whether a GET or HEAD was received and is not answered yet."""
        return self._reads and (self._waiter is None or self._waiter.done())  # it waits for the next request

    def data_received(self, data: bytes) -> None:
        if self._current_request is None and (line := _REQUEST_LINE.match(data)) is not None:
            self._path, self._reads = str(line[2], "ascii", "replace"), line[1] in (b"GET", b"HEAD")
        super().data_received(data)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Refuses what cannot be parsed, and closes the connection."""
        if status != HTTPStatus.BAD_REQUEST or self.transport is None:
            return super().handle_error(request, status, exc, message)
        # In one line, without a mark below the error's place and advice to install something.
        reason = " ".join((message or "").partition(". ")[0].split()).rstrip(" ^")[:QUOTED_CHARACTERS]
        self.transport.write(closing_bytes(self._refuse(self._path, BadMessage(f"malformed request: {reason}"))))
        self.force_close()
        return web.Response()  # unsent

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """An exception here was raised ahead of the middlewares, by an expectation."""
        if isinstance(resp, web.HTTPException):
            reply = self._refuse(request.path, BadMessage(resp.text or ""))
            headers = {**reply.headers, "Content-Type": reply.content_type}
            resp = web.Response(status=reply.status, body=reply.body, headers=headers)
        return await super().finish_response(request, resp, start_time)
