"""The browser page and its files, read once, so that no path can lead anywhere else."""

from __future__ import annotations

from http import HTTPStatus
from importlib import resources

from aiohttp import web

from .reply import Reply

_CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def page_routes() -> list[web.RouteDef]:
    """A route for each file, and one for the page itself."""
    return [_route(path, reply) for path, reply in web_files().items()]


def web_files() -> dict[str, Reply]:
    """Every file of the page by its path."""
    files = {}
    for entry in resources.files("voxgate.web").iterdir():
        content_type = _CONTENT_TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_file() and content_type is not None:
            headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
            files[f"/{entry.name}"] = Reply(HTTPStatus.OK, entry.read_bytes(), content_type, headers)
    if "/index.html" in files:
        files["/"] = files["/index.html"]
    return files


def _route(path: str, reply: Reply) -> web.RouteDef:
    async def answer(_: web.Request) -> web.Response:
        return reply.response()

    return web.get(path, answer)
