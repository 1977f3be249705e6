"""Browser tokens: whose they are, until when, and what is not one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from voxgate.gateway.access.keys import ApiKey, hash_key
from voxgate.gateway.access.tokens import TokenClaims, TokenSigner

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECRET = b"s" * 32
ADA = ApiKey("ada", hash_key("a"))
CLAIMS = {"sub": "ada", "key": ADA.fingerprint, "aud": "voxgate", "exp": NOW + timedelta(seconds=60)}


def test_fingerprint_is_eight_bytes_of_the_hash() -> None:
    assert len(bytes.fromhex(ADA.fingerprint)) == 8
    assert ADA.fingerprint in ADA.hash


def test_a_token_names_its_key_until_it_expires() -> None:
    signer = TokenSigner(SECRET)
    token, expires = signer.issue(ADA, 60, NOW)
    assert expires == NOW + timedelta(seconds=60)
    assert signer.read(token, expires - timedelta(seconds=1)) == TokenClaims("ada", ADA.fingerprint, expires)
    assert signer.read(token, expires) is None


def test_replicas_with_one_secret_accept_each_others_tokens() -> None:
    token, _ = TokenSigner(SECRET).issue(ADA, 60, NOW)
    assert TokenSigner(SECRET).read(token, NOW) is not None
    assert TokenSigner(b"t" * 32).read(token, NOW) is None
    assert TokenSigner().read(token, NOW) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSigner(b"short")


def forged() -> list[str]:
    token, _ = TokenSigner(SECRET).issue(ADA, 60, NOW)
    head, body, signature = token.split(".")
    return [
        "",
        ".",
        "..",
        "a.b.c",
        token[:-2],
        f"{head}.{body}.",
        f"{head}.{body[:-2]}.{signature}",
        jwt.encode(CLAIMS, None, "none"),
        jwt.encode(CLAIMS, SECRET, "HS256"),  # the signing key is derived, not the secret itself
        "ä.ö.ü",
        "\ud800.x.y",
        "." * 10_000,
    ]


@pytest.mark.parametrize("token", forged())
def test_forged_token_has_no_key(token: str) -> None:
    assert TokenSigner(SECRET).read(token, NOW) is None


@pytest.mark.parametrize("missing", ["sub", "key", "aud", "exp"])
def test_every_claim_is_required(missing: str) -> None:
    signer = TokenSigner(SECRET)
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    assert signer.read(jwt.encode(claims, signer._secret, "HS256"), NOW) is None


@pytest.mark.parametrize("expiry", ["5", [], 1e20, 2**63, float("nan")])
def test_odd_expiry_is_refused(expiry: object) -> None:
    signer = TokenSigner(SECRET)
    claims = json.dumps({**CLAIMS, "exp": expiry}).encode()
    assert signer.read(jwt.api_jws.encode(claims, signer._secret, "HS256"), NOW) is None


def test_token_of_another_audience_is_refused() -> None:
    signer = TokenSigner(SECRET)
    claims = {**CLAIMS, "aud": "other"}
    assert signer.read(jwt.encode(claims, signer._secret, "HS256"), NOW) is None
