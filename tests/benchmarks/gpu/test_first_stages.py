"""Where the time of a first PCM goes: how moments of several processes become one utterance's stages."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.benchmarks.gpu import first_stages
from voxgate.benchmarks.gpu.first_stages import StageTimestamps, Step, after, before, spread_of, stages_ms, step_spread
from voxgate.pipeline.ipc.records import RecordFlag, pack_step


@pytest.fixture
def stamps(monkeypatch: pytest.MonkeyPatch) -> StageTimestamps:
    stamps = StageTimestamps()
    monkeypatch.setattr(first_stages, "TIMESTAMPS", stamps)
    return stamps


class Talker:
    def run(self, epoch: int) -> int:
        return epoch + 1


def test_watched_call_returns_and_records_timestamps(stamps: StageTimestamps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Talker, "run", Talker.run)
    before(Talker, "run", "asked", lambda _, epoch: [("epoch", epoch)])
    after(Talker, "run", "sent", lambda result, _, epoch: [("epoch", result), ("epoch", epoch)])
    assert Talker().run(5) == 6
    rows, _ = stamps.take()
    assert [(stage, key) for _, stage, key in rows] == [
        ("asked", ("epoch", 5)),
        ("sent", ("epoch", 6)),
        ("sent", ("epoch", 5)),
    ]
    assert stamps.take() == ([], [])


def test_utterance_passes_its_stages_in_order() -> None:
    rows = [
        (0.9, "codec asked", ("slot", 3)),
        (1.001, "asked", ("epoch", 64)),
        (1.002, "asked", ("epoch", 128)),
        (1.004, "made", ("epoch", 64)),
        (1.005, "codec asked", ("slot", 4)),
        (1.006, "codec asked", ("slot", 3)),
        (1.009, "codec asked", ("slot", 3)),
    ]
    reached = stages_ms(rows, 1.0, 1.008, 64, 3)
    # The slot's job of before is another utterance's, and the second one is not for the first sound.
    assert reached == pytest.approx({"asked": 1.0, "made": 4.0, "codec asked": 6.0, "pcm": 8.0})


def test_stages_are_reported_as_times_and_durations() -> None:
    told = spread_of([{"asked": 1.0, "made": 4.0, "pcm": 6.0}, {"asked": 1.0, "made": 5.0, "pcm": 9.0}])
    assert told["made"] == {"at": 4.0, "at95": 5.0, "took": 3.0, "took95": 4.0}
    assert told["pcm"] == {"at": 6.0, "at95": 9.0, "took": 2.0, "took95": 4.0}
    assert "sent" not in told


def test_steps_are_reported_by_host_time() -> None:
    steps = [Step(2, 2, at, at + 0.001, at + 0.002, at + 0.0025, at + 0.005) for at in (1.0, 1.004, 1.008)]
    told = step_spread(steps)
    assert (told["schedule"], told["backbone"], told["launch"], told["flight"]) == (1.0, 1.0, 0.5, 2.5)
    assert (told["apart"], told["rows50"], told["steps"]) == (4.0, 2.0, 3)
    assert step_spread(steps[:1]) == {}


def test_only_a_first_frame_is_recorded() -> None:
    frame = np.zeros((4, 6), np.int32)
    frame[:, 1] = 64, 128, 192, 256
    frame[1, 2] = 1
    frame[2, 3] = RecordFlag.END
    assert first_stages._firsts(frame.tobytes(), 2) == [("epoch", 64), ("epoch", 256)]
    assert first_stages._firsts(pack_step(3, 0.1), 2) == []


def test_watched_functions_exist() -> None:
    for owner, names in (
        (first_stages.answering._WorkerLoop, ("_launch", "_answer")),
        (first_stages.client.CodecClient, ("_submit",)),
        (first_stages.engine.TalkerEngine, ("run",)),
        (first_stages.generation.Generation, ("take",)),
    ):
        for name in names:
            assert callable(getattr(owner, name))
