"""A folder for vLLM's temporary files: removed with this process or, after SIGKILL, when the next one starts."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ..errors import EngineError

FOLDER_PREFIX = "voxgate-vllm-"
MAX_PARENT_BYTES = 48
"""Length of the parent's path. A Unix socket's path has at most 107 bytes (unix(7)); vLLM's file names take 36."""


def make_temporary_folder(parent: Path) -> Path:
    """Makes a folder that no other process removes while this one lives; removes those of processes that ended.

    Raises OSError.
    """
    for left in parent.glob(f"{FOLDER_PREFIX}*"):
        _remove_if_unlocked(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
        # The kernel releases the lock when the process ends. Another process may have removed the folder before.
        try:
            descriptor = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError:
            # A file system without locks: no process can lock the folder and take it for an abandoned one.
            return folder
        if folder.exists():
            return folder
        os.close(descriptor)


def _lock(folder: Path) -> int:
    """Returns a descriptor that holds the lock. Raises OSError when another process does, or the folder is gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_unlocked(folder: Path) -> None:
    with suppress(OSError):
        descriptor = _lock(folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@cache
def process_temporary_folder() -> Path:
    """This process's folder, below TMPDIR or, where that path is too long, below /tmp.

    Raises EngineError when it cannot be made.
    """
    try:
        usual = Path(tempfile.gettempdir())
        folder = make_temporary_folder(usual if len(os.fsencode(usual)) <= MAX_PARENT_BYTES else Path("/tmp"))
    except OSError as error:
        raise EngineError(f"the talker's engine needs a temporary folder: {error}") from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def tmpdir_for_children(folder: Path) -> Iterator[None]:
    """Sets TMPDIR to `folder` for processes started in this block."""
    usual = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if usual is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = usual
