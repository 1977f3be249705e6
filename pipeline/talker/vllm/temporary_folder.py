"""A folder for what vLLM leaves lying about: it goes with this process or, where that is killed, at the next start."""

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

from ...errors import EngineError

PREFIX = "voxgate-vllm-"
MAX_PARENT_BYTES = 48
"""A socket's path has 107 bytes at most (unix(7)); vLLM's have names of 36 in a folder of ours."""


def make_temporary_folder(parent: Path) -> Path:
    """A folder below `parent` that nobody removes while this process lives; those of dead ones are removed first."""
    for left in parent.glob(f"{PREFIX}*"):
        _remove_if_left(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # The lock is the kernel's and ends with the process. Somebody else's start may have seen the folder before.
        try:
            held = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError:
            # A file system without locks, so nobody can take it for one that was left.
            return folder
        if folder.exists():
            return folder
        os.close(held)


def _lock(folder: Path) -> int:
    """The lock as a descriptor. Raises OSError when a process has it, or the folder is gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):
        held = _lock(folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


@cache
def scratch() -> Path:
    """This process's own, in the temporary folder; where that has too long a name, in the machine's.

    Raises EngineError where none can be made.
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
    """Processes started meanwhile take `folder` for the temporary one."""
    usual = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if usual is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = usual
