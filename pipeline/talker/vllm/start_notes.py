"""What the engine's process tells about its start, as files in the folder that describes the talker to it.

vLLM reports any failure of its process as "see root cause above". These files carry the cause in a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from ...errors import EngineError


class Note(StrEnum):
    """Name of a note's file.

    `FAILURE`: why the engine cannot start. `MEMORY`: how it divides the GPU's memory. `FAST_PATHS`: which it uses.
    """

    FAILURE = "note-failure"
    MEMORY = "note-memory"
    FAST_PATHS = "note-fast-paths"


def write_note(folder: Path, note: Note, text: str) -> None:
    """Leaves `text` for the process that starts the engine; replaces an earlier note of the kind."""
    (folder / note).write_text(text, encoding="utf-8")


def read_note(folder: Path, note: Note) -> str | None:
    """The note, or None when the engine's process has left none."""
    try:
        return (folder / note).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


@contextmanager
def failures_noted(folder: Path, doing: str, end_process: Callable[[int], Any] = os._exit) -> Iterator[None]:
    """Ends the process with status 1 and a note when the GPU's memory ends or an EngineError is raised while `doing`.

    Nothing else reads a traceback of the engine's process; other errors keep theirs, because they are unexpected.
    """
    try:
        yield
    except (EngineError, torch.OutOfMemoryError) as error:
        reason = str(error) if isinstance(error, EngineError) else _out_of_memory(doing)
        write_note(folder, Note.FAILURE, reason)
        end_process(1)


def _out_of_memory(doing: str) -> str:
    free, total = torch.cuda.mem_get_info()
    return (
        f"GPU memory ran out while {doing}: {free / 1e9:.1f} of {total / 1e9:.1f} GB are free; "
        "set fewer --slots or free memory that other programs hold"
    )
