"""Authentication: credentials, origins and addresses, and the callers or errors they give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from voxgate.gateway.access.auth import AccessControl, Credential, find_credential, origin_allowed, origin_and_host
from voxgate.gateway.access.caller import Grant
from voxgate.gateway.access.keys import ApiKey, KeyLimits, KeyRing, hash_key
from voxgate.gateway.access.rights import (
    ISSUE_TOKENS,
    LIST_VOICES,
    MANAGE_VOICES,
    READ_METRICS,
    SPEAK,
    Right,
)
from voxgate.gateway.access.tokens import TokenSigner
from voxgate.gateway.errors import Forbidden, Unauthorized, UnknownHost
from voxgate.pipeline.errors import BadMessage


def of(query: dict[str, str] | None = None, **headers: str) -> str | None:
    named = {name.replace("_", "-").lower(): [value] for name, value in headers.items()}
    found = find_credential(lambda name: named.get(name.lower(), []), query or {})
    return None if found is None else found.value


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
    assert of(Sec_WebSocket_Protocol="token, k, k") is None
    assert of(Sec_WebSocket_Protocol="token") is None
    assert of(Sec_WebSocket_Protocol="chat, k") is None
    assert of({"token": "k"}) == "k"
    assert of({"authorization": "Bearer k"}) == "k"
    assert of({"authorization": "k"}) == "k"
    assert of({"token": ""}) is None


def test_the_header_comes_before_the_query() -> None:
    assert of({"token": "q"}, Authorization="Bearer h") == "h"


def test_subprotocols_may_stand_in_two_headers() -> None:
    headers = {"Sec-WebSocket-Protocol": ["token", "k"]}
    assert find_credential(lambda name: headers.get(name, []), {}) == Credential("k")


@pytest.mark.parametrize("name", ["Authorization", "xi-api-key"])
def test_repeated_header_is_refused(name: str) -> None:
    with pytest.raises(BadMessage, match=f"{name} must occur at most once"):
        find_credential(lambda asked: ["Bearer a", "Bearer b"] if asked == name else [], {})


def test_credential_is_not_shown() -> None:
    assert "vg_secret" not in repr(Credential("vg_secret"))


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

    def __init__(self, *keys: ApiKey, defaults: KeyLimits | None = None, hosts: tuple[str, ...] = ()) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.access = AccessControl(
            KeyRing(keys),
            TokenSigner(b"s" * 32),
            defaults=defaults,
            origins=(PAGE,),
            hosts=hosts,
            clock=lambda: self.now,
        )


ADA = ApiKey("ada", hash_key("a"), KeyLimits(utterances=2))
BOB = ApiKey("bob", hash_key("b"))


def grant(access: AccessControl, credential: str | None = None, peer: str = "p", *, in_url: bool = False) -> Grant:
    return access.authenticate(None if credential is None else Credential(credential, in_url), peer)


def test_every_address_is_a_caller_without_keys() -> None:
    access = Door(defaults=KeyLimits(sockets=3)).access
    here = grant(access, None, "10.0.0.1")
    assert (here.caller.name, here.caller.limits) == ("10.0.0.1", KeyLimits(sockets=3))
    assert here.rights == set(Right)
    assert grant(access, "whatever", "10.0.0.1").caller is here.caller
    assert grant(access, None, "10.0.0.2").caller is not here.caller


def test_addresses_of_one_ipv6_network_are_one_caller() -> None:
    access = Door().access
    here = grant(access, None, "2001:db8:1:2::1").caller
    assert grant(access, None, "2001:db8:1:2:ffff::9").caller is here
    assert grant(access, None, "2001:db8:1:3::1").caller is not here


def test_unused_addresses_are_dropped() -> None:
    access = Door().access
    kept = grant(access, None, "busy").caller
    kept.sockets += 1
    for number in range(5000):
        grant(access, None, f"address {number}")
    assert len(access._callers) <= 1025
    assert grant(access, None, "busy").caller is kept


@pytest.mark.parametrize(
    "host", [None, "localhost", "localhost:8000", "127.0.0.1:80", "[::1]:8000", "10.1.2.3", "Voice.example:8"]
)
def test_addresses_localhost_and_listed_names_are_this_gateway(host: str | None) -> None:
    Door(hosts=("voice.example",)).access.check_host(host)
    Door(hosts=("*",)).access.check_host("evil.example")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "[::1",
        "127.0.0.1.evil.example",
        "a@b",
        ":80",
        "x" * 9000,
    ],
)
def test_other_hosts_are_refused(host: str) -> None:
    with pytest.raises(UnknownHost) as refused:
        Door(hosts=("voice.example",)).access.check_host(host)
    assert len(refused.value.message) < 400


@pytest.mark.parametrize("credential", [None, "", "c", "A", "ada", "a ", hash_key("a")])
def test_configured_keys_are_required(credential: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        grant(Door(ADA).access, credential)
    assert refused.value.retryable is False


def test_a_key_is_one_caller_from_every_address() -> None:
    access = Door(ADA, BOB, defaults=KeyLimits(utterances=9, sockets=5)).access
    ada = grant(access, "a", "10.0.0.1").caller
    assert (ada.name, ada.limits) == ("ada", KeyLimits(utterances=2, sockets=5))
    assert grant(access, "a", "10.0.0.2").caller is ada
    assert grant(access, "b", "10.0.0.1").caller.name == "bob"


def test_unlisted_origin_is_refused() -> None:
    access = Door(ADA).access
    access.check_origin(PAGE, "gateway.example")
    for origin in ("null", "https://evil.example", PAGE + ".evil.example"):
        with pytest.raises(Forbidden):
            access.check_origin(origin, "gateway.example")


def test_key_in_the_url_is_refused_with_the_reason() -> None:
    access = Door(ADA).access
    with pytest.raises(Unauthorized, match="must not be in the URL"):
        grant(access, "a", in_url=True)
    with pytest.raises(Unauthorized, match="is not valid"):
        grant(access, "other", in_url=True)
    token, _ = access.issue_token(grant(access, "a"), 60)
    assert grant(access, token, in_url=True).caller.name == "ada"


def test_key_has_the_rights_it_lists() -> None:
    access = Door(ADA, ApiKey("eve", hash_key("e"), rights=frozenset({Right.METRICS}))).access
    ada, eve = grant(access, "a"), grant(access, "e")
    ada.check(SPEAK)
    ada.check(LIST_VOICES)
    eve.check(READ_METRICS)
    for refused, requirement in ((ada, MANAGE_VOICES), (ada, READ_METRICS), (eve, SPEAK), (eve, LIST_VOICES)):
        with pytest.raises(Forbidden, match="lacks the right"):
            refused.check(requirement)


def test_token_has_no_right_but_to_speak() -> None:
    access = Door(ApiKey("ada", hash_key("a"), rights=frozenset(Right))).access
    token, _ = access.issue_token(grant(access, "a"), 60)
    held = grant(access, token)
    held.check(SPEAK)
    for requirement in (MANAGE_VOICES, READ_METRICS, ISSUE_TOKENS):
        with pytest.raises(Forbidden):
            held.check(requirement)


def test_token_identifies_its_key_until_it_expires() -> None:
    door = Door(ADA)
    token, expires = door.access.issue_token(grant(door.access, "a"), 60)
    held = grant(door.access, token)
    assert held.caller is grant(door.access, "a").caller
    assert held.token_expires == expires
    assert not door.access.has_expired(held)
    door.now = expires
    assert door.access.has_expired(held)
    with pytest.raises(Unauthorized):
        grant(door.access, token)


def test_no_token_is_issued_without_keys() -> None:
    access = Door().access
    with pytest.raises(Unauthorized):
        access.issue_token(grant(access), 60)


def test_no_token_is_issued_to_the_holder_of_a_replaced_key() -> None:
    access = Door(ADA).access
    held = grant(access, "a")
    access.replace_keys(KeyRing([ApiKey("ada", hash_key("new"))]))
    with pytest.raises(Unauthorized):
        access.issue_token(held, 60)


@pytest.mark.parametrize("ttl_s", [-1, 0, 3601, 10**9])
def test_token_lifetime_is_bounded(ttl_s: int) -> None:
    access = Door(ADA).access
    with pytest.raises(ValueError, match="between 1 and 3600"):
        access.issue_token(grant(access, "a"), ttl_s)


def test_key_and_its_tokens_end_when_it_expires() -> None:
    door = Door(ApiKey("ada", hash_key("a"), expires=datetime(2030, 1, 1, 0, 1, tzinfo=UTC)))
    held = grant(door.access, "a")
    token, _ = door.access.issue_token(held, 3600)
    grants = [held, grant(door.access, token)]
    assert not any(map(door.access.has_expired, grants))
    door.now += timedelta(minutes=1)
    assert all(map(door.access.has_expired, grants))
    for credential in ("a", token):
        with pytest.raises(Unauthorized):
            grant(door.access, credential)


def test_changed_limits_apply_to_open_sockets() -> None:
    access = Door(ADA).access
    held = grant(access, "a")
    access.replace_keys(KeyRing([ApiKey("ada", hash_key("a"), KeyLimits(utterances=7)), BOB]))
    assert not access.is_revoked(held)
    assert held.caller.limits.utterances == 7
    assert grant(access, "a").caller is held.caller


@pytest.mark.parametrize(
    "keys",
    [
        [BOB],
        [ApiKey("ada", hash_key("new"))],
        [ApiKey("ada", hash_key("a"), rights=frozenset({Right.VOICES}))],
    ],
)
def test_tokens_and_sockets_of_a_removed_or_changed_key_end(keys: list[ApiKey]) -> None:
    access = Door(ADA).access
    held = grant(access, "a")
    token, _ = access.issue_token(held, 60)
    by_token = grant(access, token)
    access.replace_keys(KeyRing(keys))
    assert access.is_revoked(held)
    assert access.is_revoked(by_token)
    try:
        grant(access, token).check(SPEAK)
    except (Unauthorized, Forbidden):
        pass
    else:
        pytest.fail("the token still speaks")


def test_sockets_opened_without_keys_end_when_keys_are_configured() -> None:
    access = Door().access
    held = grant(access)
    assert not access.is_revoked(held)
    assert not access.has_expired(held)
    access.replace_keys(KeyRing([ADA]))
    assert access.is_revoked(held)


def test_key_that_expires_by_a_reload_ends_its_sockets() -> None:
    access = Door(ADA).access
    held = grant(access, "a")
    assert not access.has_expired(held)
    access.replace_keys(KeyRing([ApiKey("ada", hash_key("a"), expires=datetime(2029, 1, 1, tzinfo=UTC))]))
    assert access.has_expired(held)
