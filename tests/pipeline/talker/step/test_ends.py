"""When speech may end, and when it must."""

from __future__ import annotations

import torch
from voxgate.pipeline.talker.frames import FrameFlag
from voxgate.pipeline.talker.step import MIN_FRAMES
from voxgate.pipeline.talker.tables import Field

from .bench import END, SHAPE, Bench


def test_speech_does_not_end_while_text_is_open(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=1, closed=False)
    bench.speak(0, 5)
    assert bench.take((0, 5, [END, 9])) == [0]
    assert bench.sent[-1].codes[0] == 9


def test_speech_does_not_end_before_its_least_length(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=0)
    for frame in range(MIN_FRAMES):
        assert bench.take((0, frame, [END, 9])) == [0]
    assert bench.take((0, MIN_FRAMES, [END, 9])) == [SHAPE.end_token]


def test_speech_does_not_end_before_end_of_text_was_read(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=4)
    for frame in range(4):
        assert bench.take((0, frame, [END, 9])) == [0]
    assert bench.take((0, 4, [END, 9])) == [SHAPE.end_token]


def test_text_that_is_ahead_of_the_speech_is_read_sooner(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=6)
    bench.tables.control[0, Field.TEXT_LEAD] = 3
    bench.speak(0, 2)
    assert bench.take((0, 2, [END, 9])) == [0]
    assert bench.take((0, 3, [END, 9])) == [SHAPE.end_token]


def test_a_prompts_own_text_may_have_to_be_read_first(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=1)
    bench.tables.control[0, Field.TEXT_LEAD] = -2
    bench.speak(0, 2)
    assert bench.take((0, 2, [END, 9])) == [0]
    assert bench.take((0, 3, [END, 9])) == [SHAPE.end_token]


def test_a_slot_may_let_speech_end_early_but_never_at_once(bench: Bench) -> None:
    bench.own(0, epoch=1, tokens=9, closed=False)
    bench.tables.control[0, Field.EARLY_END] = 1
    for frame in range(MIN_FRAMES):
        assert bench.take((0, frame, [END, 9])) == [0]
    assert bench.take((0, MIN_FRAMES, [END, 9])) == [SHAPE.end_token]


def test_the_end_is_reported_and_leaves_no_frame(bench: Bench) -> None:
    bench.own(0, epoch=1)
    bench.speak(0, 3)
    before = bench.codes.clone()
    assert bench.take((0, 3, [END])) == [SHAPE.end_token]
    assert (bench.sent[-1].frame, bench.sent[-1].flags) == (3, FrameFlag.END)
    assert torch.equal(bench.codes[: SHAPE.slots], before[: SHAPE.slots])


def test_the_cap_ends_closed_speech_by_force(bench: Bench) -> None:
    bench.own(0, epoch=1, cap=3)
    bench.speak(0, 3)
    assert bench.take((0, 3, [9])) == [SHAPE.end_token]
    assert bench.sent[-1].flags == FrameFlag.END | FrameFlag.CAPPED
    assert [record.flags for record in bench.sent[:-1]] == [0, 0, 0]


def test_speech_that_ends_by_itself_at_the_cap_was_not_cut(bench: Bench) -> None:
    bench.own(0, epoch=1, cap=3)
    bench.speak(0, 3)
    bench.take((0, 3, [END]))
    assert bench.sent[-1].flags == FrameFlag.END


def test_the_cap_waits_for_the_text_to_be_closed(bench: Bench) -> None:
    bench.own(0, epoch=1, cap=3, closed=False)
    bench.speak(0, 5)
    assert bench.sent[-1].flags == 0
    bench.tables.control[0, Field.CLOSED] = 1
    assert bench.take((0, 5, [9])) == [SHAPE.end_token]
