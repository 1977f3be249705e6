"""From a name to a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from voxgate.pipeline.checkpoint import CheckpointError
from voxgate.pipeline.hub import checkpoint_folder


def test_the_demo_voice_ships_with_the_package() -> None:
    assert (checkpoint_folder("demo") / "config.json").is_file()


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert checkpoint_folder(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["/no/such/folder", "./here", "no-such-thing", "a/b/c"])
def test_what_cannot_be_a_repository_is_not_asked_for(name: str) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        checkpoint_folder(name)


def test_a_repository_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda repository: str(tmp_path / repository))
    assert checkpoint_folder("Qwen/some-voice") == tmp_path / "Qwen/some-voice"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (GatedRepoError, "gated"),
        (RepositoryNotFoundError, "no repository"),
        (LocalEntryNotFoundError, "cannot download"),
        (OSError, "cannot download"),
    ],
)
def test_why_a_download_failed_is_explained(
    monkeypatch: pytest.MonkeyPatch, failure: type[Exception], told: str
) -> None:
    def fail(_: str) -> str:
        raise failure.__new__(failure)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(CheckpointError, match=told):
        checkpoint_folder("Qwen/some-voice")
