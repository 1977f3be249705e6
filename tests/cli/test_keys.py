from __future__ import annotations

import io
from pathlib import Path

import pytest
from voxgate.cli.main import main
from voxgate.gateway.access.keys import load_keys
from voxgate.gateway.access.rights import Right


def test_new_key_is_printed_once_and_stored_as_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "ada.1"]) == 0
    out, err = capsys.readouterr()
    key = err.strip().rpartition(" ")[2]
    assert key not in out
    file = tmp_path / "keys.toml"
    file.write_text(out)
    found = load_keys(file, []).find(key)
    assert found is not None
    assert (found.name, found.rights) == ("ada.1", {Right.SPEAK})


def test_rights_of_a_new_key_are_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "ada", "--rights", "voices+speak"]) == 0
    file = tmp_path / "keys.toml"
    file.write_text(capsys.readouterr().out)
    found = load_keys(file, []).named("ada")
    assert found is not None
    assert found.rights == {Right.SPEAK, Right.VOICES}
    assert main(["keys", "new", "ada", "--rights", "all"]) == 2
    assert "rights must be speak, voices, metrics" in capsys.readouterr().err


def test_existing_key_is_read_from_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("my key\n"))
    assert main(["keys", "hash", "bob"]) == 0
    out, err = capsys.readouterr()
    assert "my key" not in out + err
    file = tmp_path / "keys.toml"
    file.write_text(out)
    assert load_keys(file, []).find("my key") is not None


def test_wrong_usage_exits_with_status_2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["keys", "new", "two words"]) == 2
    assert "key name" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["keys", "hash", "bob"]) == 1
