"""Lets the web pages that are listed read answers over plain HTTP (Fetch Standard, section 3.2, "CORS protocol")."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

_HEADERS = "authorization, content-type, xi-api-key"
_READABLE = "retry-after, dg-error, dg-request-id"
_REMEMBER_S = 600


class CrossOrigin:
    """`listed` says whether pages of an origin may use the gateway from elsewhere."""

    def __init__(self, listed: Callable[[str], bool]) -> None:
        self._listed = listed

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser that asks before it sends; None when this is no such request."""
        method = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or method is None or not self._listed(request.headers.get("Origin", "")):
            return None
        headers = {
            "Access-Control-Allow-Methods": method,
            "Access-Control-Allow-Headers": _HEADERS,
            "Access-Control-Max-Age": str(_REMEMBER_S),
        }
        return web.Response(status=HTTPStatus.NO_CONTENT, headers=headers)

    async def sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say in the headers of an answer that the page may read it; called before they are sent."""
        origin = request.headers.get("Origin", "")
        if self._listed(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _READABLE
            response.headers["Vary"] = "Origin"
