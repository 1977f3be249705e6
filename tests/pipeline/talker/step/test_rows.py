"""Rows that are nobody's next frame change nothing."""

from __future__ import annotations

import pytest
import torch
from voxgate.pipeline.talker.tables import Field

from .bench import END, SHAPE, Bench, Record

STRANGERS = {
    "no owner": (0, 0, 0),
    "warm-up far beyond": (0, 0, 4000),
    "a chunk of the prefill": (1, 5, -3),
    "a chunk of a recomputed prefill": (1, 5, 1),
    "a frame further than due": (1, 5, 4),
    "the owner before": (2, 6, 3),
}


@pytest.mark.parametrize(("slot", "epoch", "frame"), STRANGERS.values(), ids=STRANGERS)
def test_other_rows_change_nothing_and_are_not_reported(bench: Bench, slot: int, epoch: int, frame: int) -> None:
    bench.own(1, epoch=5)
    bench.own(2, epoch=4)
    bench.speak(1, 3)
    bench.speak(2, 3)
    bench.own(2, epoch=6)
    assert bench.tables.control[slot, Field.EPOCH] == epoch
    bench.sent.clear()
    before = bench.codes[: SHAPE.slots].clone()
    assert bench.take((slot, frame, [END, 9])) == [slot]
    assert bench.sent == []
    assert torch.equal(bench.codes[: SHAPE.slots], before)
    # Everyone's next frame is the one it was.
    bench.take((1, 3, [8]), (2, 0, [8]))
    assert [(record.slot, record.frame) for record in bench.sent] == [(1, 3), (2, 0)]


def test_a_stranger_beside_a_frame_leaves_it_alone(bench: Bench) -> None:
    bench.own(1, epoch=5)
    assert bench.take((0, 0, [3]), (1, 0, [4]), (2, 9, [END])) == [0, 1, 2]
    assert bench.sent == [Record(1, 5, 0, 0, [4, 5, 6, 7])]


def test_speech_resumes_where_a_recomputed_prefill_reaches_its_next_frame(bench: Bench) -> None:
    bench.own(1, epoch=5)
    bench.speak(1, 3)
    bench.take((1, 1, [19]))
    bench.take((1, 3, [8]))
    assert [record.codes[0] for record in bench.sent] == [0, 1, 2, 8]
    assert bench.codes[1, :4, 0].tolist() == [0, 1, 2, 8]


def test_a_new_owner_begins_at_its_first_frame(bench: Bench) -> None:
    bench.own(1, epoch=5)
    bench.speak(1, 4)
    bench.own(1, epoch=6)
    bench.take((1, 0, [8]))
    assert (bench.sent[-1].epoch, bench.sent[-1].frame) == (6, 0)
