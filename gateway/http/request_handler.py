"""aiohttp's handler of one connection; a request that it refuses itself gets an answer in the shape of its service.

Proven with aiohttp 3.14.5: the constructor, `handle_error` and `finish_response` are public, and not documented.
"""

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

_REQUEST_LINE = re.compile(rb"[A-Z]+ ([^\s?]+)")


class RequestHandler(web.RequestHandler):
    """`refuse` makes the answer to a request for a path from an error."""

    __slots__ = ("_path", "_refuse")

    def __init__(self, server: web.Server, refuse: Callable[[str, ReportableError], Reply], **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._refuse, self._path = refuse, ""

    def data_received(self, data: bytes) -> None:
        if (line := _REQUEST_LINE.match(data)) is not None:
            self._path = str(line[1], "ascii", "replace")
        super().data_received(data)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answers a request that cannot be parsed, and closes the connection."""
        if status != HTTPStatus.BAD_REQUEST or self.transport is None:
            return super().handle_error(request, status, exc, message)
        # Without the advice to install something, and in one line, without the mark below the place of the error.
        reason = " ".join((message or "").partition(". ")[0].split()).rstrip(" ^")[:QUOTED_CHARACTERS]
        answer = self._refuse(self._path, BadMessage(f"the request is malformed: {reason}"))
        self.transport.write(closing_bytes(answer))
        self.force_close()
        return web.Response()  # never sent

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends an answer. An exception was raised before any middleware: the request expects what is not supported."""
        if isinstance(resp, web.HTTPException):
            reply = self._refuse(request.path, BadMessage(resp.text or ""))
            headers = {**reply.headers, "Content-Type": reply.content_type}
            resp = web.Response(status=reply.status, body=reply.body, headers=headers)
            resp.force_close()
        return await super().finish_response(request, resp, start_time)
