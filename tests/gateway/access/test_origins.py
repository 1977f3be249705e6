"""Which pages may use the gateway."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.origins import origin_allowed, origin_and_host

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


def test_headers_given_twice_are_nobody() -> None:
    assert origin_and_host([], ["a"]) == (None, "a")
    assert origin_and_host(["http://a"], ["a", "b"]) == ("http://a", None)
    origin, host = origin_and_host(["http://127.0.0.1", "https://evil.example"], ["127.0.0.1"])
    assert not origin_allowed(origin, host, ())
