"""Where options come from, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from voxgate.gateway.settings import Settings, SettingsError, settings_from


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "voxgate.toml"
    path.write_text('port = 1\nsend_ahead_ms = 200\nsockets = 3\nallowed_origins = ["https://a.example"]\n')
    return path


def test_defaults_are_valid_and_every_option_is_described() -> None:
    assert Settings() == settings_from({}, None, {})
    assert all(field.description and field.description.endswith(".") for field in Settings.model_fields.values())


def test_flags_beat_the_environment_that_beats_the_file(toml: Path) -> None:
    environ = {"VOXGATE_PORT": "2", "VOXGATE_SEND_AHEAD_MS": "300", "HOME": "/"}
    settings = settings_from({"port": 5}, toml, environ)
    assert (settings.port, settings.send_ahead_ms, settings.sockets, settings.slow_consumer_timeout_ms) == (
        5,
        300,
        3,
        3000,
    )
    assert settings.allowed_origins == ("https://a.example",)


def test_lists_in_the_environment_are_separated_by_commas() -> None:
    settings = settings_from({}, None, {"VOXGATE_ALLOWED_ORIGINS": "https://a.example, https://b.example"})
    assert settings.allowed_origins == ("https://a.example", "https://b.example")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]  # that it is refused is the point


@pytest.mark.parametrize(
    ("flags", "file", "environ", "said"),
    [
        ({"prot": 1}, None, {}, ["prot", "command line", "did you mean 'port'"]),
        ({}, "send_ahed_ms = 1", {}, ["send_ahed_ms", "voxgate.toml", "did you mean 'send_ahead_ms'"]),
        ({}, None, {"VOXGATE_SOKETS": "1"}, ["sokets", "environment", "did you mean 'sockets'"]),
        ({}, "port = ", {}, ["voxgate.toml", "not TOML"]),
        ({}, "port = 'x'", {}, ["port", "voxgate.toml", "valid integer", '"x"']),
        ({}, "[port]\nx = 1", {}, ["port", "voxgate.toml"]),
        ({"port": 65536}, None, {}, ["port", "command line", "65535"]),
        ({}, None, {"VOXGATE_DEVICE": "tpu"}, ["device", "environment", "'cuda'", '"tpu"']),
        (
            {"send_ahead_ms": 1000, "lookahead_ms": 1000},
            None,
            {},
            ["lookahead_ms must be at least send_ahead_ms + 160"],
        ),
        ({"port": -1, "sockets": 0}, None, {}, ["port", "sockets"]),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, flags: dict[str, Any], file: str | None, environ: dict[str, str], said: list[str]
) -> None:
    path = None
    if file is not None:
        path = tmp_path / "voxgate.toml"
        path.write_text(file)
    with pytest.raises(SettingsError) as refused:
        settings_from(flags, path, environ)
    for part in said:
        assert part in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*none\.toml: No such file"):
        settings_from({}, tmp_path / "none.toml", {})


def test_the_clients_limits_are_the_smaller_ones() -> None:
    assert Settings(max_characters=100).session_limits(2000).characters_per_utterance == 100
    assert Settings(max_characters=100).session_limits(50).characters_per_utterance == 50
