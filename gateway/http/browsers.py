"""Headers for browsers: which pages may read answers, and what the gateway's own page may do."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

_HEADER_NAMES = re.compile(r"[a-z0-9_, -]{0,2000}", re.IGNORECASE)
_EXPOSED_HEADERS = "retry-after, dg-error, dg-request-id, x-sample-rate, x-voxgate-voice, x-voxgate-warning"
_PREFLIGHT_MAX_AGE_S = 600

_CONTENT_SECURITY_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
PAGE_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in _CONTENT_SECURITY_POLICY.items()),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of the page and its files: no foreign or inline code, no frame around the page, no address in a Referer.

The page keeps an API key in its session storage.
"""


class CorsPolicy:
    """Lets pages of listed origins read answers over plain HTTP (Fetch Standard, section 3.2, "CORS protocol").

    `listed` returns whether an origin is listed.
    """

    def __init__(self, listed: Callable[[str], bool]) -> None:
        self._listed = listed

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a CORS preflight request; None for other requests.

        It allows the headers that are asked for: the services' libraries add many of their own, and none that the
        gateway does not know has an effect.
        """
        method = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or method is None or not self._listed(request.headers.get("Origin", "")):
            return None
        asked = request.headers.get("Access-Control-Request-Headers", "")
        headers = {
            "Access-Control-Allow-Methods": method,
            "Access-Control-Allow-Headers": asked if _HEADER_NAMES.fullmatch(asked) else "",
            "Access-Control-Max-Age": str(_PREFLIGHT_MAX_AGE_S),
        }
        return web.Response(status=HTTPStatus.NO_CONTENT, headers=headers)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the headers that let a listed page read the answer; called before headers are sent."""
        origin = request.headers.get("Origin", "")
        if self._listed(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
            response.headers["Vary"] = "Origin"
