"""What the port answers to plain HTTP requests, and whom it lets open a socket."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

SPEECH_PATH = "/v1/speech"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(status: HTTPStatus, document: Any, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, json.dumps(document, ensure_ascii=False).encode(), headers=headers or {})


def refusal(status: HTTPStatus, error: str, message: str, retry_after_ms: int | None = None) -> Reply:
    """A refused request; with `retry_after_ms` also as Retry-After, in whole seconds."""
    document: dict[str, Any] = {"error": error, "message": message}
    headers = {}
    if retry_after_ms is not None:
        document["retry_after_ms"] = retry_after_ms
        headers["Retry-After"] = str(-(-retry_after_ms // 1000))
    return json_reply(status, document, headers)


def not_found(path: str) -> Reply:
    return refusal(HTTPStatus.NOT_FOUND, "not_found", f"nothing at {path[:200]}")


class Routes:
    """HTTP answers by exact path; the page's files are read once, so no path can lead anywhere else."""

    def __init__(self, documents: Mapping[str, Callable[[], Reply]]) -> None:
        self._documents = dict(documents)
        self._files = _web_files()

    def answer(self, path: str) -> Reply:
        path = urlsplit(path).path
        if (document := self._documents.get(path)) is not None:
            return document()
        if (page := self._files.get(path)) is not None:
            return page
        return not_found(path)


def _web_files() -> dict[str, Reply]:
    files = {}
    for entry in resources.files("voxgate.web").iterdir():
        content_type = _CONTENT_TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_file() and content_type is not None:
            headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
            files[f"/{entry.name}"] = Reply(HTTPStatus.OK, entry.read_bytes(), content_type, headers)
    if "/index.html" in files:
        files["/"] = files["/index.html"]
    return files


_CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def origin_allowed(origin: str | None, host: str | None, allowed: tuple[str, ...]) -> bool:
    """Whether a page of `origin` may open a socket at `host` (the Host header).

    Without an Origin it is no browser. The gateway's own page may if it was reached by an address or as
    localhost: a foreign name that was made to point here (DNS rebinding) is none of both. Other names have to
    be listed.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    if host is None:
        return False
    try:
        page = urlsplit(origin)
        own = urlsplit(f"//{host}")
        same = (page.hostname, page.port or _port(page.scheme)) == (
            own.hostname,
            own.port or _port(page.scheme),
        )
    except ValueError:
        return False
    plain = page.scheme in ("http", "https") and page.username is None and not page.path
    return plain and same and page.hostname is not None and _is_address(page.hostname)


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_address(hostname: str) -> bool:
    if hostname == "localhost":
        return True
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True
