"""Notes of the engine's process about its start, as files in the folder that describes the talker to it.

vLLM reports any failure of its process as "see root cause above". These files carry the cause in a sentence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch

from ...errors import VoxgateError
from ..start_progress import StartStep


class Note(StrEnum):
    """Name of a note's file.

    `FAILURE`: why the engine cannot start. `STEPS`: what it did so far, and since when. `MEMORY`: how it divides the
    GPU's memory. `FAST_PATHS`: which it uses. `KERNELS`: those that it found compiled, and those that it compiled.
    `FALLBACK_KERNELS`: what was compiled for the codec once a fast path of it had failed its self-test.
    """

    FAILURE = "note-failure"
    STEPS = "note-steps"
    MEMORY = "note-memory"
    FAST_PATHS = "note-fast-paths"
    KERNELS = "note-kernels"
    FALLBACK_KERNELS = "note-fallback-kernels"


def write_note(folder: Path, note: Note, text: str) -> None:
    """Leaves `text` for the process that starts the engine; replaces an earlier note of the kind."""
    (folder / note).write_text(text, encoding="utf-8")


def read_note(folder: Path, note: Note) -> str | None:
    """The note, or None when the engine's process has left none."""
    try:
        return (folder / note).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def note_step(folder: Path, doing: str) -> None:
    """Adds a step of the start that begins now."""
    free_bytes, tensor_bytes = "", 0
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no types for it
        free_bytes, tensor_bytes = str(torch.cuda.mem_get_info()[0]), torch.cuda.memory_reserved()
    with (folder / Note.STEPS).open("a", encoding="utf-8") as file:
        file.write(f"{time.monotonic()}\t{free_bytes}\t{tensor_bytes}\t{doing}\n")


def read_steps(folder: Path) -> list[StartStep]:
    """The steps of the engine's start so far."""
    lines = (read_note(folder, Note.STEPS) or "").split("\n")[:-1]  # a line without its end is being written
    return [
        StartStep(doing, float(begun_s), int(free_bytes) if free_bytes else None, int(tensor_bytes))
        for begun_s, free_bytes, tensor_bytes, doing in (line.split("\t") for line in lines)
    ]


START_STEPS = {
    "init_device": "initialising the device",
    "load_model": "loading the model",
    "determine_available_memory": "running the model for the first time",
    "initialize_from_config": "allocating the cache of keys and values",
    "compile_or_warm_up_model": "warming up",
}
"""Methods of a worker of vLLM's in the order of their calls, and what they do."""

W = TypeVar("W", bound=type)


def notes_its_start(worker: W) -> W:
    """Has a worker class of vLLM's leave a note of each of `START_STEPS`, and of its failure (`failures_noted`)."""
    for name, doing in START_STEPS.items():
        setattr(worker, name, _noted(getattr(worker, name), doing))
    return worker


def _noted(method: Callable[..., Any], doing: str) -> Callable[..., Any]:
    @wraps(method)
    def noted(self: Any, *args: Any, **more: Any) -> Any:
        folder = Path(self.vllm_config.model_config.model)
        note_step(folder, doing)
        with failures_noted(folder, doing):
            return method(self, *args, **more)

    return noted


@contextmanager
def failures_noted(folder: Path, doing: str, end_process: Callable[[int], Any] = os._exit) -> Iterator[None]:
    """Ends the process with status 1 and a note when memory ends or a VoxgateError is raised while `doing`.

    Nothing else reads a traceback of the engine's process; other errors keep theirs, because they are unexpected.
    """
    try:
        yield
    except (VoxgateError, MemoryError, RuntimeError) as error:
        if (reason := _reason(error, doing)) is None:
            raise
        write_note(folder, Note.FAILURE, reason)
        end_process(1)


def failure_of_start(folder: Path, error: Exception) -> str | None:
    """Why the engine's process ended, given vLLM's `error`; None when it had not begun to load the model."""
    if (reason := read_note(folder, Note.FAILURE)) is not None:
        return reason
    if not (steps := read_steps(folder)):
        return None
    doing = steps[-1].doing
    if "': -9" in str(error):  # vLLM gives the exit status of its process in its message only
        return f"the talker's engine was killed while {doing}, most likely because memory ran out: set fewer --slots"
    return f"the talker's engine failed while {doing}; its own messages say why"


def _reason(error: Exception, doing: str) -> str | None:
    if isinstance(error, VoxgateError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        free, total = torch.cuda.mem_get_info()
        return _out_of_memory("GPU memory", doing, free, total)
    # PyTorch has no type for the end of host memory; the message begins with the place in its source.
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        memory = psutil.virtual_memory()
        return _out_of_memory("memory", doing, memory.available, memory.total)
    return None


def _out_of_memory(what: str, doing: str, free: int, total: int) -> str:
    return (
        f"{what} ran out while {doing}: {free / 1e9:.1f} of {total / 1e9:.1f} GB are free; "
        "set fewer --slots or free memory that other programs hold"
    )
