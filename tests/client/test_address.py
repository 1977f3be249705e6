from __future__ import annotations

import pytest
from voxgate.client.address import ServerAddress


@pytest.mark.parametrize(
    ("written", "websocket", "http"),
    [
        ("http://host:8000", "ws://host:8000/p", "http://host:8000/p"),
        ("https://host/", "wss://host/p", "https://host/p"),
        ("host:8000", "ws://host:8000/p", "http://host:8000/p"),
        ("wss://[::1]:8000/v1/speech", "wss://[::1]:8000/p", "https://[::1]:8000/p"),
    ],
)
def test_urls_of_an_address(written: str, websocket: str, http: str) -> None:
    address = ServerAddress.parse(written)
    assert address.websocket_url("/p") == websocket
    assert address.http_url("/p") == http


def test_path_and_query_are_kept() -> None:
    address = ServerAddress.parse("ws://host/behind/v1/speech?key=1")
    assert address.websocket_url(address.path, address.query) == "ws://host/behind/v1/speech?key=1"


@pytest.mark.parametrize(("written", "port"), [("ws://host", 80), ("https://host", 443), ("host:8000", 8000)])
def test_port_defaults_to_that_of_the_scheme(written: str, port: int) -> None:
    assert ServerAddress.parse(written).port == port


@pytest.mark.parametrize("written", ["ftp://host", "", "ws:///path", "host:port"])
def test_malformed_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"must|Port"):
        ServerAddress.parse(written)
