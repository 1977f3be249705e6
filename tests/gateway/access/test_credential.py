"""Where a credential stands."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict
from voxgate.gateway.access.credential import credential_of


def of(query: dict[str, str] | None = None, **headers: str) -> str | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return credential_of(CIMultiDict(named), query or {})


@pytest.mark.parametrize("header", ["Bearer k", "bearer k", "Token k", "BEARER   k ", " Bearer k"])
def test_bearer_and_token(header: str) -> None:
    assert of(Authorization=header) == "k"


@pytest.mark.parametrize("header", ["", "k", "Bearer", "Bearer ", "Basic k", "Bearerk"])
def test_other_headers_carry_none(header: str) -> None:
    assert of(Authorization=header) is None


def test_the_places_of_each_kind_of_client() -> None:
    assert of() is None
    assert of(XI_API_KEY="k") == "k"
    assert of(xi_api_key=" ") is None
    assert of(Sec_WebSocket_Protocol="token, k") == "k"
    assert of(Sec_WebSocket_Protocol="bearer,k") == "k"
    assert of(Sec_WebSocket_Protocol="token") is None
    assert of(Sec_WebSocket_Protocol="chat, k") is None
    assert of({"token": "k"}) == "k"
    assert of({"authorization": "Bearer k"}) == "k"
    assert of({"authorization": "k"}) == "k"
    assert of({"token": ""}) is None


def test_the_header_comes_before_the_query() -> None:
    assert of({"token": "q"}, Authorization="Bearer h") == "h"
