from __future__ import annotations

from pathlib import Path

import pytest
from fakes.certificates import self_signed
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers.file_copies import FileCopies


def test_copies_stay_as_last_usable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys, (certificate, key) = tmp_path / "keys.toml", self_signed(tmp_path, "first")
    keys.write_text(first := f'[keys.ada]\nhash = "{hash_key("a")}"\n')
    copies = FileCopies(Settings(keys_file=keys, tls_certificate=certificate, tls_key=key))
    paths = copies.settings.keys_file, copies.settings.tls_certificate, copies.settings.tls_key

    def copied() -> list[str]:
        return [path.read_text() for path in paths if path is not None]

    was = [first, certificate.read_text(), key.read_text()]
    assert copied() == was
    other, other_key = self_signed(tmp_path, "second")
    other.rename(certificate)  # its key is still the old one
    keys.write_text(second := first.replace("ada", "bob"))
    assert copied() == was, "nothing was reloaded"
    assert copies.reload() == ("keys",)
    assert copied() == [second, *was[1:]]
    other_key.rename(key)
    keys.write_text("garbage [")
    assert copies.reload() == ("certificate",)
    assert copied() == [second, certificate.read_text(), key.read_text()]
    assert "certificate not reloaded" in caplog.text
    assert f"{keys} is not valid TOML" in caplog.text
