from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fakes.waiting import block_until
from voxgate.benchmarks.gpu import first_stages
from voxgate.benchmarks.gpu.first_stages import (
    HostStepTimes,
    StageTimestamps,
    after,
    before,
    stages_ms,
    summarise_stages,
    summarise_steps,
    watch_engine,
    watch_gateway,
    wrap,
)
from voxgate.pipeline.codec import worker_loop
from voxgate.pipeline.ipc.records import HEADER, RecordFlag, pack_step
from voxgate.pipeline.talker.cuda import frame_sender
from voxgate.pipeline.talker.cuda.frame_sender import FrameSender


@pytest.fixture
def timestamps(monkeypatch: pytest.MonkeyPatch) -> StageTimestamps:
    timestamps = StageTimestamps()
    monkeypatch.setattr(first_stages, "TIMESTAMPS", timestamps)
    return timestamps


class Talker:
    def run(self, epoch: int) -> int:
        return epoch + 1


def test_watched_call_returns_and_records_timestamps(
    timestamps: StageTimestamps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Talker, "run", Talker.run)
    before(Talker, "run", "submitted", lambda _, epoch: [("epoch", epoch)])
    after(Talker, "run", "sent", lambda result, _, epoch: [("epoch", result), ("epoch", epoch)])
    assert Talker().run(5) == 6
    rows, _ = timestamps.take()
    assert [(stage, key) for _, stage, key in rows] == [
        ("submitted", ("epoch", 5)),
        ("sent", ("epoch", 6)),
        ("sent", ("epoch", 5)),
    ]
    assert timestamps.take() == ([], [])


def test_utterance_passes_its_stages_in_order() -> None:
    rows = [
        (0.9, "codec_submitted", ("slot", 3)),
        (1.001, "submitted", ("epoch", 64)),
        (1.002, "submitted", ("epoch", 128)),
        (1.004, "frame_done", ("epoch", 64)),
        (1.005, "codec_submitted", ("slot", 4)),
        (1.006, "codec_submitted", ("slot", 3)),
        (1.009, "codec_submitted", ("slot", 3)),
    ]
    reached = stages_ms(rows, 1.0, 1.008, 64, 3)
    # The slot's first job belongs to an earlier utterance, the last one to later PCM.
    assert reached == pytest.approx({"submitted": 1.0, "frame_done": 4.0, "codec_submitted": 6.0, "pcm": 8.0})


def test_stages_are_reported_as_times_and_durations() -> None:
    summary = summarise_stages(
        [{"submitted": 1.0, "frame_done": 4.0, "pcm": 6.0}, {"submitted": 1.0, "frame_done": 5.0, "pcm": 9.0}]
    )
    assert summary["frame_done"] == {"at": 4.0, "at95": 5.0, "took": 3.0, "took95": 4.0}
    assert summary["pcm"] == {"at": 6.0, "at95": 9.0, "took": 2.0, "took95": 4.0}
    assert "sent" not in summary


def test_steps_are_reported_by_host_time() -> None:
    steps = [HostStepTimes(2, 2, at, at + 0.001, at + 0.002, at + 0.0025, at + 0.005) for at in (1.0, 1.004, 1.008)]
    summary = summarise_steps(steps)
    assert (summary["schedule"], summary["backbone"], summary["launch"], summary["flight"]) == (1.0, 1.0, 0.5, 2.5)
    assert (summary["apart"], summary["rows50"], summary["steps"]) == (4.0, 2.0, 3)
    assert summarise_steps(steps[:1]) == {}


def test_only_a_first_frame_is_recorded() -> None:
    frame = np.zeros((4, 6), np.int32)
    frame[:, 1] = 64, 128, 192, 256
    frame[1, 2] = 1
    frame[2, 3] = RecordFlag.END
    assert first_stages._first_frame_keys(frame.tobytes(), 2) == [("epoch", 64), ("epoch", 256)]
    assert first_stages._first_frame_keys(pack_step(3, 0.1), 2) == []


def test_watched_functions_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeChannel:
        def add_request_async(self) -> None: ...

    watched: list[str] = []

    def wrap(owner: Any, name: str, _: object) -> None:
        assert callable(getattr(owner, name))
        watched.append(name)

    monkeypatch.setattr(first_stages, "wrap", wrap)
    monkeypatch.setattr(first_stages, "request_channel", lambda _: FakeChannel())
    watch_gateway(None)
    assert len(watched) == 4
    assert all(callable(getattr(worker_loop._WorkerLoop, name)) for name in ("_launch", "_answer"))


@pytest.fixture
def unwrapped_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes what the test wraps."""

    def wrap_for_test(owner: Any, name: str, around: Callable[..., Any]) -> None:
        monkeypatch.setattr(owner, name, getattr(owner, name))
        wrap(owner, name, around)

    monkeypatch.setattr(first_stages, "wrap", wrap_for_test)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame senders copy to memory that is not pinned, without events of a device."""

    class FakeEvent:
        def record(self) -> None: ...

        def synchronize(self) -> None: ...

    empty = torch.empty
    monkeypatch.setattr(frame_sender, "new_event", lambda **_: FakeEvent())
    monkeypatch.setattr(torch, "empty", lambda *size, dtype, pin_memory: empty(*size, dtype=dtype))  # noqa: ARG005 - torch's names


@pytest.mark.usefixtures("unwrapped_afterwards", "without_gpu")
def test_first_frame_of_a_watched_engine_is_recorded(timestamps: StageTimestamps) -> None:
    sent: list[bytes] = []
    failed: list[int] = []
    sender = FrameSender(4, HEADER + 16, sent.append, end_process=failed.append)
    # The captured step (`GraphedStep`), which puts its records into the sender.
    step = SimpleNamespace(_send=sender.put)
    watch_engine(SimpleNamespace(model_runner=SimpleNamespace(model=SimpleNamespace(_step=step))))
    records = torch.zeros(2, HEADER + 16, dtype=torch.int32)
    records[:, 1] = torch.tensor((64, 128))
    records[1, 2] = 1
    step._send(records)
    block_until(lambda: sent or failed)
    assert sent == [records.numpy().tobytes()]
    assert [(stage, key) for _, stage, key in timestamps.take()[0]] == [("frame_done", ("epoch", 64))]
