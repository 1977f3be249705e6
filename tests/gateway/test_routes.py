"""Origins and plain HTTP answers."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest
from voxgate.gateway import routes
from voxgate.gateway.routes import Reply, Routes, origin_allowed, refusal

LISTED = ("https://voice.example",)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "gateway.example"),
        (None, None),
        ("https://voice.example", "gateway.example"),
        ("http://localhost:8000", "localhost:8000"),
        ("http://LOCALHOST:8000", "localhost:8000"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://192.168.0.7", "192.168.0.7"),
        ("http://192.168.0.7", "192.168.0.7:80"),
        ("https://192.168.0.7", "192.168.0.7:443"),
    ],
)
def test_allowed_origins(origin: str | None, host: str | None) -> None:
    assert origin_allowed(origin, host, LISTED)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("null", "localhost:8000"),
        ("", "localhost:8000"),
        ("https://voice.example.evil.example", "gateway.example"),
        ("https://voice.example:8443", "gateway.example"),
        ("http://voice.example", "gateway.example"),
        ("https://VOICE.example", "gateway.example"),
        ("https://user@voice.example", "gateway.example"),
        ("https://voice.example,https://voice.example", "gateway.example"),
        ("http://evil.example:8000", "evil.example:8000"),  # DNS rebinding
        ("http://localhost:8001", "localhost:8000"),
        ("https://localhost:8000", "localhost"),
        ("http://localhost.evil.example:8000", "localhost:8000"),
        ("http://user@localhost:8000", "localhost:8000"),
        ("http://localhost:8000/path", "localhost:8000"),
        ("ftp://localhost:8000", "localhost:8000"),
        ("http://localhost:port", "localhost:8000"),
        ("http://[::1", "[::1]:8000"),
        ("http://localhost:8000", None),
        ("http://", ""),
    ],
)
def test_other_origins_are_not_allowed(origin: str, host: str | None) -> None:
    assert not origin_allowed(origin, host, LISTED)


def test_a_star_allows_any() -> None:
    assert origin_allowed("https://evil.example", "gateway.example", ("*",))


def test_a_refusal_rounds_its_seconds_up() -> None:
    reply = refusal(HTTPStatus.SERVICE_UNAVAILABLE, "at_capacity", "full", 1001)
    assert reply.headers == {"Retry-After": "2"}
    assert json.loads(reply.body) == {"error": "at_capacity", "message": "full", "retry_after_ms": 1001}


def test_the_page_and_its_files_have_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Reply(HTTPStatus.OK, b"<!doctype html>", "text/html; charset=utf-8")
    monkeypatch.setattr(routes, "_web_files", lambda: {"/": page, "/index.html": page})
    served = Routes({"/healthz": lambda: Reply(HTTPStatus.OK, b"{}")})
    assert served.answer("/?x=1") is page
    assert served.answer("/healthz").body == b"{}"
    assert served.answer("/index.html/").status == HTTPStatus.NOT_FOUND


def test_only_known_kinds_of_files_are_served() -> None:
    for path, reply in routes._web_files().items():
        assert path == "/" or path.rpartition(".")[2] in ("html", "css", "js", "svg")
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.body
