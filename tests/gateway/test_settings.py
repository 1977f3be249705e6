"""Options: their sources, their precedence, and the errors about invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from voxgate.gateway.access.usage import MAX_PROCESSES
from voxgate.gateway.settings import MAX_WORKERS, Settings, SettingsError, settings_from


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "voxgate.toml"
    path.write_text('port = 1\nsend_ahead_ms = 200\nsockets = 3\nallowed_origins = ["https://a.example"]\n')
    return path


def test_defaults_are_valid_and_every_option_has_a_help_text() -> None:
    assert Settings() == settings_from({}, None, {})
    assert all(field.description and field.description.endswith(".") for field in Settings.model_fields.values())


def test_flags_override_environment_which_overrides_file(toml: Path) -> None:
    environ = {"VOXGATE_PORT": "2", "VOXGATE_SEND_AHEAD_MS": "300", "HOME": "/"}
    settings = settings_from({"port": 5}, toml, environ)
    assert (settings.port, settings.send_ahead_ms, settings.sockets, settings.slow_consumer_timeout_ms) == (
        5,
        300,
        3,
        3000,
    )
    assert settings.allowed_origins == ("https://a.example",)


def test_lists_in_environment_are_separated_by_commas() -> None:
    settings = settings_from({}, None, {"VOXGATE_ALLOWED_ORIGINS": "https://a.example, https://b.example"})
    assert settings.allowed_origins == ("https://a.example", "https://b.example")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]  # the test is that it is refused


@pytest.mark.parametrize(
    ("flags", "file", "environ", "expected"),
    [
        ({"prot": 1}, None, {}, ["prot", "command line", "did you mean 'port'"]),
        ({}, "send_ahed_ms = 1", {}, ["send_ahed_ms", "voxgate.toml", "did you mean 'send_ahead_ms'"]),
        ({}, None, {"VOXGATE_SOKETS": "1"}, ["sokets", "environment", "did you mean 'sockets'"]),
        ({}, "port = ", {}, ["voxgate.toml", "not valid TOML"]),
        ({}, "port = 'x'", {}, ["port", "voxgate.toml", "valid integer", '"x"']),
        ({}, "[port]\nx = 1", {}, ["port", "voxgate.toml"]),
        ({"port": 65536}, None, {}, ["port", "command line", "65535"]),
        ({}, None, {"VOXGATE_DEVICE": "tpu"}, ["device", "environment", "'cuda'", '"tpu"']),
        (
            {"send_ahead_ms": 1000, "lookahead_ms": 1000},
            None,
            {},
            ["lookahead_ms must be at least send_ahead_ms + 160 = 1160, got 1000"],
        ),
        ({"port": -1, "sockets": 0}, None, {}, ["port", "sockets"]),
    ],
)
def test_error_names_the_option_and_the_place_that_set_it(
    tmp_path: Path, flags: dict[str, Any], file: str | None, environ: dict[str, str], expected: list[str]
) -> None:
    path = None
    if file is not None:
        path = tmp_path / "voxgate.toml"
        path.write_text(file)
    with pytest.raises(SettingsError) as refused:
        settings_from(flags, path, environ)
    for part in expected:
        assert part in str(refused.value)


def test_error_quotes_no_key(tmp_path: Path) -> None:
    path = tmp_path / "voxgate.toml"
    path.write_text('keys = "vg_secret-in-clear"')
    with pytest.raises(SettingsError, match=r"keys in .*tuple") as refused:
        settings_from({}, path, {})
    assert "secret" not in str(refused.value)


def test_error_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*none\.toml: No such file"):
        settings_from({}, tmp_path / "none.toml", {})


def test_limit_of_characters_is_the_smaller_of_option_and_model() -> None:
    assert Settings(max_characters=100).session_limits(2000).characters_per_utterance == 100
    assert Settings(max_characters=100).session_limits(50).characters_per_utterance == 50


def test_workers_stay_within_the_processes_that_share_counts() -> None:
    assert MAX_WORKERS < MAX_PROCESSES, "one process is the engine's"


def test_tls_key_without_certificate_is_refused() -> None:
    with pytest.raises(SettingsError, match="tls_key requires tls_certificate"):
        settings_from({"tls_key": "key.pem"}, None, {})


def test_kernels_of_vllm_have_no_cache_in_float8() -> None:
    with pytest.raises(SettingsError, match="kv_cache_dtype fp8 requires gpu_kernels voxgate"):
        settings_from({"kv_cache_dtype": "fp8", "gpu_kernels": "vllm"}, None, {})


def test_aliases_are_in_lower_case() -> None:
    assert Settings(voice_aliases=("Alloy = Ada", "*=bob")).aliases == {"alloy": "ada", "*": "bob"}


def test_alias_without_voice_is_refused() -> None:
    with pytest.raises(SettingsError, match="an alias must be NAME=VOICE, got 'alloy='"):
        settings_from({"voice_aliases": ["alloy="]}, None, {})
