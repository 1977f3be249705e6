"""The rounds of the part `sharing`, on lanes in virtual time that do not slow each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from voxgate.benchmarks.gpu import sharing
from voxgate.benchmarks.gpu.sharing import ROWS, WAYS, SharedDevice, Turn, Way, batch_shapes, launch_rounds
from voxgate.pipeline.errors import EngineError

BACKBONE_MS, PREDICTOR_MS = 6.0, 5.0


@dataclass
class VirtualLane:
    """Work is its duration, a mark is a time."""

    end_ms: float = 0.0
    busy_ms: float = 0.0

    def launch(self, work: float) -> None:
        self.end_ms += work
        self.busy_ms += work

    def mark(self) -> float:
        return self.end_ms

    def wait(self, mark: float) -> None:
        self.end_ms = max(self.end_ms, mark)


def run(turn: Turn, batches: list[float], rounds: int = 100) -> float:
    """Milliseconds of a round."""
    talker, codec = VirtualLane(), VirtualLane()
    launch_rounds(talker, codec, [BACKBONE_MS, PREDICTOR_MS], batches, turn, rounds)
    assert talker.busy_ms == rounds * (BACKBONE_MS + PREDICTOR_MS)
    assert codec.busy_ms == rounds * sum(batches)
    return talker.end_ms / rounds


@pytest.mark.parametrize("batches", [[3.0], [4.0, 4.0], [9.0, 9.0]])
def test_turns_add_up_and_lanes_side_by_side_take_what_the_slower_takes(batches: list[float]) -> None:
    step, codec = BACKBONE_MS + PREDICTOR_MS, sum(batches)
    assert run(Turn.STEP, batches) == pytest.approx(step + codec)
    assert run(Turn.BACKBONE, batches) == pytest.approx(BACKBONE_MS + max(PREDICTOR_MS, codec))
    assert run(Turn.NONE, batches) == pytest.approx(max(step, codec), rel=0.02)


def test_each_lane_is_timed_alone() -> None:
    assert run(Turn.NONE, []) == BACKBONE_MS + PREDICTOR_MS
    talker, codec = VirtualLane(), VirtualLane()
    launch_rounds(talker, codec, [], [4.0], Turn.NONE, 10)
    assert talker.end_ms == 40.0


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_batches_of_a_round_hold_one_frame_of_each_row(way: Way, rows: int) -> None:
    shapes = batch_shapes(rows, way.batch_frames)
    assert sum(math.prod(shape) for shape in shapes) == rows
    assert max(math.prod(shape) for shape in shapes) <= way.batch_frames


def test_way_that_the_gpu_refuses_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        def round_ms(self, way: Way, rows: int) -> float:
            if way.codec_priority:
                raise EngineError("CUDA driver error 801: operation not supported")
            return rows / 10

    monkeypatch.setattr(SharedDevice, "load", lambda _: Device())
    reported: list[dict[str, Any]] = []
    ways = [Way("step alone", batches=False), Way("equal"), Way("codec first", codec_priority=-1)]
    figures = sharing.sharing_figures(Path(), lambda each: reported.append(dict(each)), ways)
    assert figures["512 rows"] == {"step alone": 51.2, "equal": 51.2, "codec first": None}
    assert figures["512 rows, audio s/s"] == {"equal": 800, "codec first": None}
    assert len(reported) == 3
