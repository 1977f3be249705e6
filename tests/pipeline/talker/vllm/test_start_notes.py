"""The cause of a failed start reaches the process that starts the engine."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.talker.start_progress import StartStep
from voxgate.pipeline.talker.vllm.start_notes import (
    Note,
    failure_of_start,
    failures_noted,
    note_step,
    notes_its_start,
    read_note,
    read_steps,
    write_note,
)


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


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
        ),
    ],
)
def test_lack_of_host_memory_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    memory = SimpleNamespace(available=3 * 10**8, total=8 * 10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    ended: list[int] = []
    with failures_noted(tmp_path, "loading the model", ended.append):
        raise error
    assert ended == [1]
    assert read_note(tmp_path, Note.FAILURE) == (
        "memory ran out while loading the model: 0.3 of 8.0 GB are free; "
        "set fewer --slots or free memory that other programs hold"
    )


def test_end_of_host_memory_is_recognised_as_this_pytorch_reports_it(tmp_path: Path) -> None:
    ended: list[int] = []
    with failures_noted(tmp_path, "loading the model", ended.append):
        torch.empty(1 << 60, dtype=torch.uint8)
    assert ended == [1]
    assert (read_note(tmp_path, Note.FAILURE) or "").startswith("memory ran out while loading the model: ")


class Worker:
    """A worker of vLLM's of which one step fails."""

    def __init__(self, folder: Path) -> None:
        self.vllm_config = SimpleNamespace(model_config=SimpleNamespace(model=str(folder)))
        self.seen: list[str] = []

    def init_device(self) -> None:
        self.look()

    def load_model(self, times: int, *, more: int) -> int:
        self.look()
        return times * more

    def determine_available_memory(self) -> int:
        self.look()
        return 1

    def initialize_from_config(self) -> None:
        raise ZeroDivisionError

    def compile_or_warm_up_model(self) -> None:
        self.look()

    def look(self) -> None:
        self.seen.append(read_steps(Path(self.vllm_config.model_config.model))[-1][0])


def test_worker_notes_each_step_of_its_start(tmp_path: Path) -> None:
    worker = notes_its_start(type("Noted", (Worker,), {}))(tmp_path)
    worker.init_device()
    assert worker.load_model(2, more=3) == 6
    assert worker.determine_available_memory() == 1
    worker.compile_or_warm_up_model()
    assert worker.seen[1:] == ["loading the model", "running the model for the first time", "warming up"]
    with pytest.raises(ZeroDivisionError):
        worker.initialize_from_config()
    assert failure_of_start(tmp_path, RuntimeError("Engine core initialization failed.")) == (
        "the talker's engine failed while allocating the cache of keys and values; its own messages say why"
    )


def test_steps_have_the_times_of_their_beginnings(tmp_path: Path) -> None:
    assert read_steps(tmp_path) == []
    before = time.monotonic()
    note_step(tmp_path, "loading the model")
    note_step(tmp_path, "warming up")
    first, second = read_steps(tmp_path)
    assert (first.doing, second.doing) == ("loading the model", "warming up")
    assert before <= first.begun_s <= second.begun_s <= time.monotonic()
    assert first.free_bytes is None, "no GPU is in use"


def test_step_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    write_note(tmp_path, Note.STEPS, "1.5\t9000\t500\tloading the model\n2.")
    assert read_steps(tmp_path) == [StartStep("loading the model", 1.5, 9000, 500)]


def test_failure_before_the_model_is_left_to_vllm_s_error(tmp_path: Path) -> None:
    assert failure_of_start(tmp_path, RuntimeError("Engine core initialization failed.")) is None


def test_killed_engine_is_told_with_what_it_did(tmp_path: Path) -> None:
    note_step(tmp_path, "loading the model")
    killed = RuntimeError("Engine core initialization failed. Failed core proc(s): {'EngineCore': -9}")
    reason = failure_of_start(tmp_path, killed)
    assert reason is not None
    assert reason.startswith("the talker's engine was killed while loading the model, most likely because memory ran")
    write_note(tmp_path, Note.FAILURE, "the reason itself")
    assert failure_of_start(tmp_path, killed) == "the reason itself"


def test_unexpected_error_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), failures_noted(tmp_path, "loading the model", pytest.fail):
        raise ZeroDivisionError
    assert read_note(tmp_path, Note.FAILURE) is None
