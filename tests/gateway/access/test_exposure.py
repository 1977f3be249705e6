"""What is said and refused where the gateway is open to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from voxgate.gateway.access.exposure import anonymous_rights, exposure_warnings, is_loopback
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.access.rights import Right
from voxgate.gateway.settings import Settings

KEYS = (f"ada={hash_key('a')}",)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_addresses(host: str) -> None:
    assert is_loopback(host)
    assert list(exposure_warnings(Settings(host=host))) == []
    assert anonymous_rights(Settings(host=host)) == set(Right)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "2001:db8::1", "", "voice.example", "localhost.x"])
def test_public_address_without_keys_is_reported_and_refuses_uploads(host: str) -> None:
    assert not is_loopback(host)
    (warning,) = exposure_warnings(Settings(host=host))
    assert warning.startswith(f"the gateway listens on {host}, ")
    assert "cannot make or remove voices" in warning
    assert "\n" not in warning
    assert anonymous_rights(Settings(host=host)) == {Right.SPEAK, Right.METRICS}


def test_uploads_on_a_public_address_can_be_allowed() -> None:
    settings = Settings(host="0.0.0.0", voice_uploads=True)
    (warning,) = exposure_warnings(settings)
    assert "can also make and remove voices" in warning
    assert anonymous_rights(settings) == set(Right)


@pytest.mark.parametrize("options", [{"keys": KEYS}, {"keys_file": Path("keys.toml")}])
def test_keys_protect_a_public_address(options: dict[str, Any]) -> None:
    assert list(exposure_warnings(Settings(host="0.0.0.0", **options))) == []


@pytest.mark.parametrize(
    ("option", "mode", "said"),
    [
        ("token_secret_file", 0o600, False),
        ("token_secret_file", 0o640, False),
        ("token_secret_file", 0o644, True),
        ("keys_file", 0o644, False),
        ("keys_file", 0o646, True),
    ],
)
def test_files_that_other_users_can_misuse_are_reported(option: str, mode: int, said: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    warnings = list(exposure_warnings(Settings(**{option: path})))
    assert [str(path) in warning for warning in warnings] == [True] * said


def test_missing_file_is_reported_where_it_is_read() -> None:
    assert list(exposure_warnings(Settings(keys_file=Path("nowhere")))) == []
