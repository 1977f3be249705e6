"""A bench for each test."""
# TODO-DOC Frames: drawn, stored, reported and answered; what goes wrong goes wrong alone.
# TODO-DOC When speech may end, and when it must.
# TODO-DOC What was said is less likely after, for whoever said it.
# TODO-DOC Rows that are nobody's next frame change nothing.

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint import TalkerCheckpoint
from voxgate.pipeline.ipc.records import RecordFlag
from voxgate.pipeline.ipc.slot_tables import Field, Option
from voxgate.pipeline.talker.reference.sampling import Candidates
from voxgate.pipeline.talker.reference.step import MIN_FRAMES

from .step_bench import BOOK, END, PREFIX, SHAPE, FrameRecord, StepBench


@pytest.fixture
def bench(checkpoint: TalkerCheckpoint) -> StepBench:
    return StepBench(checkpoint)


def test_a_frame_is_stored_reported_and_answered_with_its_slot(bench: StepBench) -> None:
    bench.own(2, epoch=7)
    assert bench.take((2, 0, [11])) == [2]
    assert bench.sent == [FrameRecord(2, 7, 0, 0, [11, 12, 13, 14])]
    assert bench.codes[2, 0].tolist() == [11, 12, 13, 14]


def test_frames_of_a_batch_go_out_in_one_message(bench: StepBench) -> None:
    messages: list[bytes] = []
    bench.step._report = messages.append
    bench.own(0, epoch=1)
    bench.own(3, epoch=2)
    bench.take((3, 0, [4]), (0, 0, [5]))
    assert [np.frombuffer(m, np.int32).reshape(2, -1)[:, :5].tolist() for m in messages] == [
        [[3, 2, 0, 0, 4], [0, 1, 0, 0, 5]]
    ]


def test_special_ids_are_never_drawn(bench: StepBench) -> None:
    bench.own(0, epoch=1)
    hidden = torch.ones(1, BOOK + 1)
    bench.step(hidden, torch.tensor([0]), torch.tensor([PREFIX]))
    assert bench.sent[0].codes[0] < BOOK


def test_sampled_frames_draw_by_the_noise_of_their_seed_and_number(bench: StepBench) -> None:
    drawn = []
    for slot, company in ((0, []), (1, [(2, 0, [3])])):
        bench.own(slot, epoch=slot + 1, closed=False)
        bench.own(2, epoch=9)
        bench.tables.control[slot, Field.SEED] = 77
        bench.tables.options[slot, Option.TEMPERATURE] = 3.0
        bench.tables.options[slot, Option.PREDICTOR_TEMPERATURE] = 1.0
        bench.sent.clear()
        for frame in range(8):
            bench.take((slot, frame, [1, 2, 3, 4, 5]), *(company if frame == 0 else []))
        drawn.append([record.codes for record in bench.sent if record.slot == slot])
    assert drawn[0] == drawn[1]
    assert len({codes[0] for codes in drawn[0]}) > 2


def test_the_predictor_gets_noise_of_its_own_only_where_it_samples(bench: StepBench) -> None:
    bench.own(0, epoch=1)
    bench.own(1, epoch=2)
    bench.tables.options[1, Option.PREDICTOR_TEMPERATURE] = 0.9
    bench.take((0, 0, [1]), (1, 0, [1]))
    (noise,) = bench.predictor.noise
    assert noise.shape == (2, 3)
    assert not noise[0].any()
    assert len(set(noise[1].tolist())) == 3


def test_numbers_that_are_none_end_their_generation_only(bench: StepBench) -> None:
    for slot, epoch in ((0, 5), (1, 6), (2, 7)):
        bench.own(slot, epoch)
    hidden = torch.zeros(3, BOOK + 1)
    hidden[:, 4] = 5.0
    hidden[1, 9] = torch.nan
    tokens = bench.step(hidden, torch.tensor([0, 1, 2]), torch.full((3,), PREFIX))
    assert tokens.tolist() == [0, SHAPE.end_token, 2]
    assert [record.flags for record in bench.sent] == [0, RecordFlag.END | RecordFlag.FAILED, 0]
    assert [record.codes[0] for record in bench.sent[::2]] == [4, 4]
    assert bench.take((0, 1, [3]), (2, 1, [3])) == [0, 2], "the others go on"


def test_a_generation_that_makes_the_step_raise_ends_alone(bench: StepBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(_hidden: Tensor, first: Tensor, _candidates: Candidates, _noise: Tensor) -> Tensor:
        if bool((first == 13).any()):
            raise RuntimeError("index out of range")
        return first[:, None] + torch.arange(1, 4)

    monkeypatch.setattr(bench.step, "_predictor", predict)
    for slot, epoch in ((0, 5), (1, 6), (2, 7)):
        bench.own(slot, epoch)
    assert bench.take((0, 0, [4]), (1, 0, [13]), (2, 0, [5])) == [0, SHAPE.end_token, 2]
    assert [record.flags for record in bench.sent] == [0, RecordFlag.END | RecordFlag.FAILED, 0]
    assert [record.codes[0] for record in bench.sent[::2]] == [4, 5]


def test_speech_does_not_end_while_text_is_open(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=1, closed=False)
    bench.speak(0, 5)
    assert bench.take((0, 5, [END, 9])) == [0]
    assert bench.sent[-1].codes[0] == 9


def test_speech_does_not_end_before_its_least_length(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=0)
    for frame in range(MIN_FRAMES):
        assert bench.take((0, frame, [END, 9])) == [0]
    assert bench.take((0, MIN_FRAMES, [END, 9])) == [SHAPE.end_token]


def test_speech_does_not_end_before_end_of_text_was_read(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=4)
    for frame in range(4):
        assert bench.take((0, frame, [END, 9])) == [0]
    assert bench.take((0, 4, [END, 9])) == [SHAPE.end_token]


def test_text_that_is_ahead_of_the_speech_is_read_sooner(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=6)
    bench.tables.control[0, Field.TEXT_LEAD] = 3
    bench.speak(0, 2)
    assert bench.take((0, 2, [END, 9])) == [0]
    assert bench.take((0, 3, [END, 9])) == [SHAPE.end_token]


def test_a_prompts_own_text_may_have_to_be_read_first(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=1)
    bench.tables.control[0, Field.TEXT_LEAD] = -2
    bench.speak(0, 2)
    assert bench.take((0, 2, [END, 9])) == [0]
    assert bench.take((0, 3, [END, 9])) == [SHAPE.end_token]


def test_a_slot_may_let_speech_end_early_but_never_at_once(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=9, closed=False)
    bench.tables.control[0, Field.EARLY_END] = 1
    for frame in range(MIN_FRAMES):
        assert bench.take((0, frame, [END, 9])) == [0]
    assert bench.take((0, MIN_FRAMES, [END, 9])) == [SHAPE.end_token]


def test_the_end_is_reported_and_leaves_no_frame(bench: StepBench) -> None:
    bench.own(0, epoch=1)
    bench.speak(0, 3)
    before = bench.codes.clone()
    assert bench.take((0, 3, [END])) == [SHAPE.end_token]
    assert (bench.sent[-1].frame, bench.sent[-1].flags) == (3, RecordFlag.END)
    assert torch.equal(bench.codes[: SHAPE.slots], before[: SHAPE.slots])


def test_the_cap_ends_closed_speech_by_force(bench: StepBench) -> None:
    bench.own(0, epoch=1, cap=3)
    bench.speak(0, 3)
    assert bench.take((0, 3, [9])) == [SHAPE.end_token]
    assert bench.sent[-1].flags == RecordFlag.END | RecordFlag.CAPPED
    assert [record.flags for record in bench.sent[:-1]] == [0, 0, 0]


def test_speech_that_ends_by_itself_at_the_cap_was_not_cut(bench: StepBench) -> None:
    bench.own(0, epoch=1, cap=3)
    bench.speak(0, 3)
    bench.take((0, 3, [END]))
    assert bench.sent[-1].flags == RecordFlag.END


def test_the_cap_waits_for_the_text_to_be_closed(bench: StepBench) -> None:
    bench.own(0, epoch=1, cap=3, closed=False)
    bench.speak(0, 5)
    assert bench.sent[-1].flags == 0
    bench.tables.control[0, Field.CLOSED] = 1
    assert bench.take((0, 5, [9])) == [SHAPE.end_token]


def test_what_was_said_is_less_likely_after(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    for frame in range(4):
        bench.take((0, frame, [1, 2, 3]))
    # 5 and 4 are halved once said; 3 is too then, and 2.5 is the largest.
    assert [record.codes[0] for record in bench.sent] == [1, 2, 3, 1]


def test_the_penalty_counts_only_what_the_same_owner_said(bench: StepBench) -> None:
    for slot in (0, 1):
        bench.own(slot, epoch=slot + 1, tokens=9)
        bench.tables.options[slot, Option.REPETITION_PENALTY] = 2.0
    bench.take((0, 0, [1, 2]))
    bench.take((0, 1, [1, 2]), (1, 0, [1, 2]))
    assert [(record.slot, record.codes[0]) for record in bench.sent] == [(0, 1), (0, 2), (1, 1)]


def test_a_new_owner_begins_without_the_words_of_the_old(bench: StepBench) -> None:
    for epoch in (1, 2):
        bench.own(0, epoch=epoch)
        bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
        bench.take((0, 0, [1, 2]))
    assert [record.codes[0] for record in bench.sent] == [1, 1]


def test_rows_of_strangers_leave_no_words_behind(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    bench.take((0, 0, [3]))
    bench.take((0, 0, [1]))
    bench.take((0, 1, [1, 2]))
    assert [record.codes[0] for record in bench.sent] == [3, 1]


STRANGERS = {
    "no owner": (0, 0, 0),
    "warm-up far beyond": (0, 0, 4000),
    "a chunk of the prefill": (1, 5, -3),
    "a chunk of a recomputed prefill": (1, 5, 1),
    "a frame further than due": (1, 5, 4),
    "the owner before": (2, 6, 3),
}


@pytest.mark.parametrize(("slot", "epoch", "frame"), STRANGERS.values(), ids=STRANGERS)
def test_other_rows_change_nothing_and_are_not_reported(bench: StepBench, slot: int, epoch: int, frame: int) -> None:
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


def test_a_stranger_beside_a_frame_leaves_it_alone(bench: StepBench) -> None:
    bench.own(1, epoch=5)
    assert bench.take((0, 0, [3]), (1, 0, [4]), (2, 9, [END])) == [0, 1, 2]
    assert bench.sent == [FrameRecord(1, 5, 0, 0, [4, 5, 6, 7])]


def test_speech_resumes_where_a_recomputed_prefill_reaches_its_next_frame(bench: StepBench) -> None:
    bench.own(1, epoch=5)
    bench.speak(1, 3)
    bench.take((1, 1, [19]))
    bench.take((1, 3, [8]))
    assert [record.codes[0] for record in bench.sent] == [0, 1, 2, 8]
    assert bench.codes[1, :4, 0].tolist() == [0, 1, 2, 8]


def test_a_new_owner_begins_at_its_first_frame(bench: StepBench) -> None:
    bench.own(1, epoch=5)
    bench.speak(1, 4)
    bench.own(1, epoch=6)
    bench.take((1, 0, [8]))
    assert (bench.sent[-1].epoch, bench.sent[-1].frame) == (6, 0)
