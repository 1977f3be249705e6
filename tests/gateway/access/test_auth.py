"""Authentication: credentials, origins and addresses, and the callers or errors they give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from multidict import CIMultiDict
from voxgate.gateway.access.auth import AccessControl, find_credential, origin_allowed, origin_and_host
from voxgate.gateway.access.keys import ApiKey, KeyLimits, KeyRing, hash_key
from voxgate.gateway.access.tokens import TokenSigner
from voxgate.gateway.errors import Forbidden, Unauthorized


def of(query: dict[str, str] | None = None, **headers: str) -> str | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return find_credential(CIMultiDict(named), query or {})


@pytest.mark.parametrize("header", ["Bearer k", "bearer k", "Token k", "BEARER   k ", " Bearer k"])
def test_bearer_and_token(header: str) -> None:
    assert of(Authorization=header) == "k"


@pytest.mark.parametrize("header", ["", "k", "Bearer", "Bearer ", "Basic k", "Bearerk"])
def test_other_headers_hold_no_credential(header: str) -> None:
    assert of(Authorization=header) is None


def test_credentials_of_each_kind_of_client_are_found() -> None:
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


def test_star_allows_any_origin() -> None:
    assert origin_allowed("https://evil.example", "gateway.example", ("*",))


def test_duplicate_headers_identify_no_caller() -> None:
    assert origin_and_host([], ["a"]) == (None, "a")
    assert origin_and_host(["http://a"], ["a", "b"]) == ("http://a", None)
    origin, host = origin_and_host(["http://127.0.0.1", "https://evil.example"], ["127.0.0.1"])
    assert not origin_allowed(origin, host, ())


PAGE = "https://voice.example"


class Door:
    """An AccessControl whose clock is set by hand."""

    def __init__(self, *keys: ApiKey, defaults: KeyLimits | None = None) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.access = AccessControl(
            KeyRing(keys), TokenSigner(b"s" * 32), defaults=defaults, origins=(PAGE,), clock=lambda: self.now
        )


ADA = ApiKey("ada", hash_key("a"), KeyLimits(utterances=2))
BOB = ApiKey("bob", hash_key("b"))


def test_every_address_is_a_caller_without_keys() -> None:
    access = Door(defaults=KeyLimits(sockets=3)).access
    here = access.authenticate(None, None, None, "10.0.0.1")
    assert (here.name, here.limits) == ("10.0.0.1", KeyLimits(sockets=3))
    assert access.authenticate("whatever", None, None, "10.0.0.1") is here
    assert access.authenticate(None, None, None, "10.0.0.2") is not here


def test_addresses_of_one_ipv6_network_are_one_caller() -> None:
    access = Door().access
    here = access.caller_of(None, "2001:db8:1:2::1")
    assert access.caller_of(None, "2001:db8:1:2:ffff::9") is here
    assert access.caller_of(None, "2001:db8:1:3::1") is not here


def test_unused_addresses_are_dropped() -> None:
    access = Door().access
    kept = access.caller_of(None, "busy")
    kept.sockets += 1
    for number in range(5000):
        access.caller_of(None, f"address {number}")
    assert len(access._callers) <= 1025
    assert access.caller_of(None, "busy") is kept


@pytest.mark.parametrize("credential", [None, "", "c", "A", "ada", "a ", hash_key("a")])
def test_configured_keys_are_required(credential: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        Door(ADA).access.authenticate(credential, None, None, "10.0.0.1")
    assert refused.value.retryable is False


def test_a_key_is_one_caller_from_every_address() -> None:
    access = Door(ADA, BOB, defaults=KeyLimits(utterances=9, sockets=5)).access
    ada = access.authenticate("a", None, None, "10.0.0.1")
    assert (ada.name, ada.limits) == ("ada", KeyLimits(utterances=2, sockets=5))
    assert access.authenticate("a", None, None, "10.0.0.2") is ada
    assert access.authenticate("b", None, None, "10.0.0.1").name == "bob"


def test_an_unlisted_origin_is_refused_even_with_a_key() -> None:
    access = Door(ADA).access
    assert access.authenticate("a", PAGE, "gateway.example", "p").name == "ada"
    for origin in ("null", "https://evil.example", PAGE + ".evil.example"):
        with pytest.raises(Forbidden):
            access.authenticate("a", origin, "gateway.example", "p")


def test_listed_origin_replaces_no_key() -> None:
    with pytest.raises(Unauthorized):
        Door(ADA).access.authenticate(None, PAGE, "gateway.example", "p")


def test_token_identifies_its_key_until_it_expires() -> None:
    door = Door(ADA)
    token, expires = door.access.issue_token("a", 60)
    assert door.access.caller_of(token, "p") is door.access.caller_of("a", "p")
    door.now = expires
    with pytest.raises(Unauthorized):
        door.access.caller_of(token, "p")


def test_token_cannot_issue_tokens() -> None:
    access = Door(ADA).access
    token, _ = access.issue_token("a", 60)
    for credential in (token, None, "nothing"):
        with pytest.raises(Unauthorized):
            access.issue_token(credential, 60)


@pytest.mark.parametrize("ttl_s", [-1, 0, 3601, 10**9])
def test_token_lifetime_is_bounded(ttl_s: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 3600"):
        Door(ADA).access.issue_token("a", ttl_s)


def test_tokens_of_an_expired_key_are_refused() -> None:
    door = Door(ApiKey("ada", hash_key("a"), expires=datetime(2030, 1, 1, 0, 1, tzinfo=UTC)))
    token, _ = door.access.issue_token("a", 3600)
    door.now += timedelta(minutes=1)
    for credential in ("a", token):
        with pytest.raises(Unauthorized):
            door.access.caller_of(credential, "p")


def test_replaced_keys_apply_at_once() -> None:
    access = Door(ADA).access
    ada = access.caller_of("a", "p")
    token, _ = access.issue_token("a", 60)
    access.replace_keys(KeyRing([ApiKey("ada", hash_key("new"), KeyLimits(utterances=7)), BOB]))
    assert access.caller_of("new", "p") is ada
    assert ada.limits.utterances == 7
    assert access.caller_of(token, "p") is ada
    with pytest.raises(Unauthorized):
        access.caller_of("a", "p")
