"""Finding or downloading the folder of a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from voxgate.pipeline.checkpoint.checkpoint import checkpoint_folder
from voxgate.pipeline.errors import CheckpointError

from ...fakes.model_hub import FakeHub, Repository


def test_demo_voice_ships_with_the_package() -> None:
    assert (checkpoint_folder("demo") / "config.json").is_file()


def test_existing_folder_is_returned(tmp_path: Path) -> None:
    assert checkpoint_folder(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["/no/such/folder", "./here", "no-such-thing", "a/b/c"])
def test_invalid_repository_id_is_not_requested(name: str) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        checkpoint_folder(name)


FILES = {
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 4096,
    "speech_tokenizer/config.json": b"{ }",
    "vocab.json": b"{  }",
    "README.md": b"Read me.",
    "original.pt": b"Not for us.",
}


def ask(hub: str, name: str, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Requests a folder in a new process, because the library reads its settings when it is imported."""
    program = f"""
from voxgate.pipeline.checkpoint.checkpoint import CheckpointError
from voxgate.pipeline.checkpoint.checkpoint import checkpoint_folder
try:
    print(checkpoint_folder({name!r}))
except CheckpointError as error:
    print("refused:", error)
"""
    settings = {"HF_ENDPOINT": hub, "HF_HOME": str(cache), "HF_HUB_DOWNLOAD_TIMEOUT": "5", "HF_HUB_ETAG_TIMEOUT": "5"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
        env=environment | settings | more,
    )


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub({"Qwen/some-voice": Repository(FILES)}) as hub:
        yield hub


def test_repository_is_downloaded_once_without_unneeded_files(hub: FakeHub, tmp_path: Path) -> None:
    folder = Path(ask(hub.url, "Qwen/some-voice", tmp_path).stdout.strip())
    there = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert there == {name: content for name, content in FILES.items() if name not in ("README.md", "original.pt")}
    hub.downloads.clear()
    assert Path(ask(hub.url, "Qwen/some-voice", tmp_path).stdout.strip()) == folder
    assert hub.downloads == []


def test_download_shows_progress(hub: FakeHub, tmp_path: Path) -> None:
    assert "100%" in ask(hub.url, "Qwen/some-voice", tmp_path).stderr


def test_interrupted_download_resumes(hub: FakeHub, tmp_path: Path) -> None:
    # The library writes in pieces of 10 MB and keeps nothing of an incomplete one.
    large = bytes(range(256)) * (24 << 12)
    hub.repositories["Qwen/some-voice"].files = FILES | {"model.safetensors": large}
    hub.break_after["model.safetensors"] = 15 << 20
    first = ask(hub.url, "Qwen/some-voice", tmp_path).stdout
    folder = Path((ask(hub.url, "Qwen/some-voice", tmp_path).stdout if "refused" in first else first).strip())
    assert (folder / "model.safetensors").read_bytes() == large
    ((file, range_),) = hub.ranges
    assert file == "model.safetensors"
    assert int(range_.removeprefix("bytes=").removesuffix("-")) >= 10_000_000


def test_cached_repository_needs_no_network(hub: FakeHub, tmp_path: Path) -> None:
    folder = ask(hub.url, "Qwen/some-voice", tmp_path).stdout
    assert ask("http://127.0.0.1:9", "Qwen/some-voice", tmp_path).stdout == folder


@pytest.mark.parametrize(
    ("refusal", "output"),
    [
        ((403, "GatedRepo"), "Qwen/closed is gated: accept its terms"),
        ((401, "RepoNotFound"), "there is no repository Qwen/closed, or it is private"),
    ],
)
def test_download_error_states_the_reason(hub: FakeHub, tmp_path: Path, refusal: tuple[int, str], output: str) -> None:
    hub.repositories["Qwen/closed"] = Repository(FILES, refusal)
    assert output in ask(hub.url, "Qwen/closed", tmp_path).stdout


def test_absent_repository_is_named(hub: FakeHub, tmp_path: Path) -> None:
    output = ask(hub.url, "Qwen/no-such-voice", tmp_path).stdout
    assert "refused: there is no repository Qwen/no-such-voice, or it is private" in output


def test_uncached_repository_without_network_is_named(tmp_path: Path) -> None:
    output = ask("http://127.0.0.1:9", "Qwen/some-voice", tmp_path).stdout
    assert "refused: cannot download Qwen/some-voice, and it is not in the local cache" in output
