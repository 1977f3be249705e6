"""The cause of a failed start reaches the process that starts the engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.talker.vllm.start_notes import Note, failures_noted, read_note, write_note


def test_note_that_was_not_written_is_none(tmp_path: Path) -> None:
    assert read_note(tmp_path, Note.FAILURE) is None


def test_note_is_read_as_written(tmp_path: Path) -> None:
    write_note(tmp_path, Note.MEMORY, "weights 5 GB")
    assert read_note(tmp_path, Note.MEMORY) == "weights 5 GB"


def test_engine_error_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    ended: list[int] = []
    with failures_noted(tmp_path, "loading the model", ended.append):
        raise EngineError("GPU memory is 1.2 GB short")
    assert ended == [1]
    assert read_note(tmp_path, Note.FAILURE) == "GPU memory is 1.2 GB short"


def test_lack_of_memory_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**8, 12 * 10**9))
    ended: list[int] = []
    with failures_noted(tmp_path, "capturing CUDA graphs", ended.append):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
    assert ended == [1]
    assert read_note(tmp_path, Note.FAILURE) == (
        "GPU memory ran out while capturing CUDA graphs: 0.1 of 12.0 GB are free; "
        "set fewer --slots or free memory that other programs hold"
    )


def test_unexpected_error_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), failures_noted(tmp_path, "loading the model", pytest.fail):
        raise ZeroDivisionError
    assert read_note(tmp_path, Note.FAILURE) is None
