"""Temporary folders of vLLM: kept while their process lives, removed afterwards."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.ipc.temporary_folder import (
    MAX_PARENT_BYTES,
    make_temporary_folder,
    process_temporary_folder,
    tmpdir_for_children,
)

HOLD = """
import sys
import tempfile
import uuid
from pathlib import Path
from voxgate.pipeline.ipc.temporary_folder import make_temporary_folder
folder = make_temporary_folder(Path(sys.argv[1]))
(folder / "socket").touch()
print(folder, flush=True)
sys.stdin.read()
"""


def test_folder_of_living_process_is_kept_and_of_killed_process_removed(tmp_path: Path) -> None:
    (tmp_path / "voxgate.txt").touch()
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        ours = make_temporary_folder(tmp_path)
        assert ours != theirs
        assert (theirs / "socket").exists()
        process.kill()
        process.wait()
    next_one = make_temporary_folder(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "voxgate.txt", ours, next_one])


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere, temporary = tmp_path / "elsewhere", tmp_path / "temporary"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    temporary.mkdir()
    (temporary / "voxgate-vllm-link").symlink_to(elsewhere)
    make_temporary_folder(temporary)
    assert (elsewhere / "kept").exists()


@pytest.mark.parametrize("usual", [None, "/var/tmp"])
def test_tmpdir_is_restored_afterwards(usual: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    if usual is not None:
        monkeypatch.setenv("TMPDIR", usual)
    with tmpdir_for_children(tmp_path):
        assert os.environ["TMPDIR"] == str(tmp_path)
    assert os.environ.get("TMPDIR") == usual


def test_parent_with_too_long_path_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("n" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = process_temporary_folder.__wrapped__()
    assert folder.parent == Path("/tmp")
    # With the name of a socket as vLLM makes it.
    assert len(str(Path("x" * MAX_PARENT_BYTES, folder.name, str(uuid.uuid4())))) <= 107


def test_file_system_without_locks_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(descriptor: int, operation: int) -> None:  # noqa: ARG001 - as flock's
        raise OSError(errno.EBADF, "as NFS says of a folder")

    monkeypatch.setattr(fcntl, "flock", refuse)
    ours = make_temporary_folder(tmp_path)
    assert make_temporary_folder(tmp_path) != ours
    assert ours.exists()


def test_folder_locked_by_another_start_is_abandoned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    busy = [True, False]

    def lock(descriptor: int, operation: int) -> None:  # noqa: ARG001 - as flock's
        if busy.pop(0):
            raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", lock)
    ours = make_temporary_folder(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert ours.exists()


def test_missing_temporary_folder_raises_engine_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    # Within what a name may have, whatever pytest's own folder is called.
    monkeypatch.setattr("voxgate.pipeline.ipc.temporary_folder.MAX_PARENT_BYTES", 4096)
    with pytest.raises(EngineError, match="temporary folder"):
        process_temporary_folder.__wrapped__()
