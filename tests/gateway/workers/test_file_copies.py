"""Copies of files: they change only when all of a kind can be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.certificates import self_signed
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.settings import Settings, SettingsError
from voxgate.gateway.workers.file_copies import FileCopies


def write_keys(path: Path, name: str) -> str:
    path.write_text(text := f'[keys.{name}]\nhash = "{hash_key(name)}"\n', "utf-8")
    return text


def test_copies_stay_as_last_usable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys, (certificate, key) = tmp_path / "keys.toml", self_signed(tmp_path, "first")
    first = write_keys(keys, "ada")
    copies = FileCopies(Settings(keys_file=keys, tls_certificate=certificate, tls_key=key))
    paths = copies.settings.keys_file, copies.settings.tls_certificate, copies.settings.tls_key

    def copied() -> list[str]:
        return [path.read_text("utf-8") for path in paths if path is not None]

    was = [first, certificate.read_text("utf-8"), key.read_text("utf-8")]
    assert copied() == was
    other, other_key = self_signed(tmp_path, "second")
    certificate.write_bytes(other.read_bytes())  # its key is still the old one
    second = write_keys(keys, "bob")
    assert copied() == was, "nothing was reloaded"
    assert copies.reload() == ("keys",)
    assert copied() == [second, *was[1:]]
    assert "certificate not reloaded" in caplog.text
    key.write_bytes(other_key.read_bytes())
    keys.write_text("garbage [", "utf-8")
    assert copies.reload() == ("certificate",)
    assert copied() == [second, other.read_text("utf-8"), other_key.read_text("utf-8")]
    assert f"{keys} is not valid TOML" in caplog.text


@pytest.mark.parametrize("name", ["keys_file", "tls_certificate", "token_secret_file", "pronunciations"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=str(tmp_path / "none")):
        FileCopies(Settings.model_validate({name: tmp_path / "none"}))
