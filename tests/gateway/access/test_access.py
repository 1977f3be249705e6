"""The door: credential, origin and address in, a caller or a typed refusal out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from voxgate.gateway.access.access import Access
from voxgate.gateway.access.keys import ApiKey, KeyLimits, KeyRing, hash_of
from voxgate.gateway.access.tokens import TokenSigner
from voxgate.gateway.errors import Forbidden, Unauthorized

PAGE = "https://voice.example"


class Door:
    """An Access whose clock is set by hand."""

    def __init__(self, *keys: ApiKey, defaults: KeyLimits | None = None) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.access = Access(
            KeyRing(keys), TokenSigner(b"s" * 32), defaults=defaults, origins=(PAGE,), clock=lambda: self.now
        )


ADA = ApiKey("ada", hash_of("a"), KeyLimits(utterances=2))
BOB = ApiKey("bob", hash_of("b"))


def test_without_keys_every_address_is_a_caller() -> None:
    access = Door(defaults=KeyLimits(sockets=3)).access
    here = access.admit(None, None, None, "10.0.0.1")
    assert (here.name, here.limits) == ("10.0.0.1", KeyLimits(sockets=3))
    assert access.admit("whatever", None, None, "10.0.0.1") is here
    assert access.admit(None, None, None, "10.0.0.2") is not here


def test_addresses_that_hold_nothing_are_forgotten() -> None:
    access = Door().access
    kept = access.identify(None, "busy")
    kept.sockets += 1
    for number in range(5000):
        access.identify(None, f"address {number}")
    assert len(access._callers) <= 1025
    assert access.identify(None, "busy") is kept


@pytest.mark.parametrize("credential", [None, "", "c", "A", "ada", "a ", hash_of("a")])
def test_with_keys_nobody_comes_in_without(credential: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        Door(ADA).access.admit(credential, None, None, "10.0.0.1")
    assert refused.value.retryable is False


def test_a_key_is_one_caller_from_every_address() -> None:
    access = Door(ADA, BOB, defaults=KeyLimits(utterances=9, sockets=5)).access
    ada = access.admit("a", None, None, "10.0.0.1")
    assert (ada.name, ada.limits) == ("ada", KeyLimits(utterances=2, sockets=5))
    assert access.admit("a", None, None, "10.0.0.2") is ada
    assert access.admit("b", None, None, "10.0.0.1").name == "bob"


def test_an_unlisted_origin_is_refused_even_with_a_key() -> None:
    access = Door(ADA).access
    assert access.admit("a", PAGE, "gateway.example", "p").name == "ada"
    for origin in ("null", "https://evil.example", PAGE + ".evil.example"):
        with pytest.raises(Forbidden):
            access.admit("a", origin, "gateway.example", "p")


def test_a_listed_origin_is_no_key() -> None:
    with pytest.raises(Unauthorized):
        Door(ADA).access.admit(None, PAGE, "gateway.example", "p")


def test_a_token_speaks_for_its_key_until_it_expires() -> None:
    door = Door(ADA)
    token, expires = door.access.issue_token("a", 60)
    assert door.access.identify(token, "p") is door.access.identify("a", "p")
    door.now = expires
    with pytest.raises(Unauthorized):
        door.access.identify(token, "p")


def test_a_token_makes_no_tokens() -> None:
    access = Door(ADA).access
    token, _ = access.issue_token("a", 60)
    for credential in (token, None, "nothing"):
        with pytest.raises(Unauthorized):
            access.issue_token(credential, 60)


@pytest.mark.parametrize("ttl_s", [-1, 0, 3601, 10**9])
def test_a_tokens_life_is_bounded(ttl_s: int) -> None:
    with pytest.raises(ValueError, match="1 to 3600"):
        Door(ADA).access.issue_token("a", ttl_s)


def test_an_expired_key_takes_its_tokens_with_it() -> None:
    door = Door(ApiKey("ada", hash_of("a"), expires=datetime(2030, 1, 1, 0, 1, tzinfo=UTC)))
    token, _ = door.access.issue_token("a", 3600)
    door.now += timedelta(minutes=1)
    for credential in ("a", token):
        with pytest.raises(Unauthorized):
            door.access.identify(credential, "p")


def test_replaced_keys_count_from_then_on() -> None:
    access = Door(ADA).access
    ada = access.identify("a", "p")
    token, _ = access.issue_token("a", 60)
    access.replace_keys(KeyRing([ApiKey("ada", hash_of("new"), KeyLimits(utterances=7)), BOB]))
    assert access.identify("new", "p") is ada
    assert ada.limits.utterances == 7
    assert access.identify(token, "p") is ada
    with pytest.raises(Unauthorized):
        access.identify("a", "p")
