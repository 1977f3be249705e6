"""`FrameStep`: frames that are stored and reported, ends of speech, repetition penalty, rows that change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.ipc.records import RecordFlag
from voxgate.pipeline.ipc.slot_tables import Field, Option
from voxgate.pipeline.talker.reference.sampling import Candidates
from voxgate.pipeline.talker.reference.step import MIN_FRAMES

from .step_bench import BOOK, END, PREFIX, SHAPE, FrameRecord, StepBench


@pytest.fixture
def bench(checkpoint: TalkerCheckpoint) -> StepBench:
    return StepBench(checkpoint)


def test_frame_is_stored_and_reported_and_its_token_is_the_slot(bench: StepBench) -> None:
    bench.own(2, epoch=7)
    assert bench.run((2, 0, [11])) == [2]
    assert bench.sent == [FrameRecord(2, 7, 0, 0, [11, 12, 13, 14])]
    assert bench.codes[2, 0].tolist() == [11, 12, 13, 14]


def test_frames_of_a_batch_are_reported_in_one_message(bench: StepBench) -> None:
    messages: list[bytes] = []
    bench.step._report = messages.append
    bench.own(0, epoch=1)
    bench.own(3, epoch=2)
    bench.run((3, 0, [4]), (0, 0, [5]))
    assert [np.frombuffer(m, np.int32).reshape(2, -1)[:, :5].tolist() for m in messages] == [
        [[3, 2, 0, 0, 4], [0, 1, 0, 0, 5]]
    ]


def test_suppressed_ids_are_never_drawn(bench: StepBench) -> None:
    bench.own(0, epoch=1)
    hidden = torch.ones(1, BOOK + 1)
    bench.step(hidden, torch.tensor([0]), torch.tensor([PREFIX]))
    assert bench.sent[0].codes[0] < BOOK


def test_sampled_frames_depend_on_seed_and_frame_only(bench: StepBench) -> None:
    drawn = []
    for slot, other_rows in ((0, []), (1, [(2, 0, [3])])):
        bench.own(slot, epoch=slot + 1, closed=False)
        bench.own(2, epoch=9)
        bench.tables.control[slot, Field.SEED] = 77
        bench.tables.options[slot, Option.TEMPERATURE] = 3.0
        bench.tables.options[slot, Option.PREDICTOR_TEMPERATURE] = 1.0
        bench.sent.clear()
        for frame in range(8):
            bench.run((slot, frame, [1, 2, 3, 4, 5]), *(other_rows if frame == 0 else []))
        drawn.append([record.codes for record in bench.sent if record.slot == slot])
    assert drawn[0] == drawn[1]
    assert len({codes[0] for codes in drawn[0]}) > 2


def test_predictor_gets_noise_only_for_sampled_rows(bench: StepBench) -> None:
    bench.own(0, epoch=1)
    bench.own(1, epoch=2)
    bench.tables.options[1, Option.PREDICTOR_TEMPERATURE] = 0.9
    bench.run((0, 0, [1]), (1, 0, [1]))
    (noise,) = bench.predictor.noise
    assert noise.shape == (2, 3)
    assert not noise[0].any()
    assert len(set(noise[1].tolist())) == 3


def test_non_finite_logits_end_only_their_generation(bench: StepBench) -> None:
    for slot, epoch in ((0, 5), (1, 6), (2, 7)):
        bench.own(slot, epoch)
    hidden = torch.zeros(3, BOOK + 1)
    hidden[:, 4] = 5.0
    hidden[1, 9] = torch.nan
    tokens = bench.step(hidden, torch.tensor([0, 1, 2]), torch.full((3,), PREFIX))
    assert tokens.tolist() == [0, SHAPE.end_token, 2]
    assert [record.flags for record in bench.sent] == [0, RecordFlag.END | RecordFlag.FAILED, 0]
    assert [record.codes[0] for record in bench.sent[::2]] == [4, 4]
    assert bench.run((0, 1, [3]), (2, 1, [3])) == [0, 2], "the other generations continue"


def test_generation_that_makes_the_step_raise_ends_alone(bench: StepBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(_hidden: Tensor, first: Tensor, _candidates: Candidates, _noise: Tensor) -> Tensor:
        if bool((first == 13).any()):
            raise RuntimeError("index out of range")
        return first[:, None] + torch.arange(1, 4)

    monkeypatch.setattr(bench.step, "_predictor", predict)
    for slot, epoch in ((0, 5), (1, 6), (2, 7)):
        bench.own(slot, epoch)
    assert bench.run((0, 0, [4]), (1, 0, [13]), (2, 0, [5])) == [0, SHAPE.end_token, 2]
    assert [record.flags for record in bench.sent] == [0, RecordFlag.END | RecordFlag.FAILED, 0]
    assert [record.codes[0] for record in bench.sent[::2]] == [4, 5]


def test_speech_does_not_end_while_text_is_open(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=1, closed=False)
    bench.run_frames(0, 5)
    assert bench.run((0, 5, [END, 9])) == [0]
    assert bench.sent[-1].codes[0] == 9


def test_speech_does_not_end_before_min_frames(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=0)
    for frame in range(MIN_FRAMES):
        assert bench.run((0, frame, [END, 9])) == [0]
    assert bench.run((0, MIN_FRAMES, [END, 9])) == [SHAPE.end_token]


def test_speech_does_not_end_before_end_of_text_was_read(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=4)
    for frame in range(4):
        assert bench.run((0, frame, [END, 9])) == [0]
    assert bench.run((0, 4, [END, 9])) == [SHAPE.end_token]


def test_text_lead_lets_speech_end_earlier(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=6)
    bench.tables.control[0, Field.TEXT_LEAD] = 3
    bench.run_frames(0, 2)
    assert bench.run((0, 2, [END, 9])) == [0]
    assert bench.run((0, 3, [END, 9])) == [SHAPE.end_token]


def test_negative_text_lead_delays_the_end(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=1)
    bench.tables.control[0, Field.TEXT_LEAD] = -2
    bench.run_frames(0, 2)
    assert bench.run((0, 2, [END, 9])) == [0]
    assert bench.run((0, 3, [END, 9])) == [SHAPE.end_token]


def test_early_end_still_requires_min_frames(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=9, closed=False)
    bench.tables.control[0, Field.EARLY_END] = 1
    for frame in range(MIN_FRAMES):
        assert bench.run((0, frame, [END, 9])) == [0]
    assert bench.run((0, MIN_FRAMES, [END, 9])) == [SHAPE.end_token]


def test_end_is_reported_and_stores_no_frame(bench: StepBench) -> None:
    bench.own(0, epoch=1)
    bench.run_frames(0, 3)
    before = bench.codes.clone()
    assert bench.run((0, 3, [END])) == [SHAPE.end_token]
    assert (bench.sent[-1].frame, bench.sent[-1].flags) == (3, RecordFlag.END)
    assert torch.equal(bench.codes[: SHAPE.slots], before[: SHAPE.slots])


def test_frame_cap_ends_closed_speech(bench: StepBench) -> None:
    bench.own(0, epoch=1, cap=3)
    bench.run_frames(0, 3)
    assert bench.run((0, 3, [9])) == [SHAPE.end_token]
    assert bench.sent[-1].flags == RecordFlag.END | RecordFlag.CAPPED
    assert [record.flags for record in bench.sent[:-1]] == [0, 0, 0]


def test_speech_ending_at_the_cap_is_not_flagged_as_capped(bench: StepBench) -> None:
    bench.own(0, epoch=1, cap=3)
    bench.run_frames(0, 3)
    bench.run((0, 3, [END]))
    assert bench.sent[-1].flags == RecordFlag.END


def test_frame_cap_applies_only_to_closed_text(bench: StepBench) -> None:
    bench.own(0, epoch=1, cap=3, closed=False)
    bench.run_frames(0, 5)
    assert bench.sent[-1].flags == 0
    bench.tables.control[0, Field.CLOSED] = 1
    assert bench.run((0, 5, [9])) == [SHAPE.end_token]


def test_penalty_lowers_codes_of_earlier_frames(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    for frame in range(4):
        bench.run((0, frame, [1, 2, 3]))
    # Logits 5, 4 and 3 are halved once drawn; then 2.5 is the largest.
    assert [record.codes[0] for record in bench.sent] == [1, 2, 3, 1]


def test_penalty_is_separate_for_each_slot(bench: StepBench) -> None:
    for slot in (0, 1):
        bench.own(slot, epoch=slot + 1, tokens=9)
        bench.tables.options[slot, Option.REPETITION_PENALTY] = 2.0
    bench.run((0, 0, [1, 2]))
    bench.run((0, 1, [1, 2]), (1, 0, [1, 2]))
    assert [(record.slot, record.codes[0]) for record in bench.sent] == [(0, 1), (0, 2), (1, 1)]


def test_new_owner_starts_without_penalties(bench: StepBench) -> None:
    for epoch in (1, 2):
        bench.own(0, epoch=epoch)
        bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
        bench.run((0, 0, [1, 2]))
    assert [record.codes[0] for record in bench.sent] == [1, 1]


def test_continued_generation_begins_behind_its_frames_and_penalises_them(bench: StepBench) -> None:
    bench.own(0, epoch=3, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    bench.tables.control[0, Field.PAST_FRAMES] = 2
    bench.history.sampled[0, [1, 2]] = 3  # as their positions note
    for frame in (1, 3):
        assert bench.run((0, frame, [7])) == [0]
    assert bench.sent == [], "only the next frame is made"
    bench.run((0, 2, [1, 2, 3]))
    bench.run((0, 3, [1, 2, 3]))
    assert [(record.frame, record.codes[0]) for record in bench.sent] == [(2, 3), (3, 1)]


def test_continued_generation_has_the_noise_of_its_frames_number(bench: StepBench) -> None:
    for slot, past in ((0, 0), (1, 4)):
        bench.own(slot, epoch=slot + 1)
        bench.tables.control[slot, [Field.SEED, Field.PAST_FRAMES]] = 77, past
        bench.tables.options[slot, [Option.TEMPERATURE, Option.PREDICTOR_TEMPERATURE]] = 1.0
    bench.run_frames(0, 4)
    bench.predictor.noise.clear()
    bench.run((0, 4, [3]), (1, 4, [3]))
    (noise,) = bench.predictor.noise
    assert noise.any()
    assert noise[0].tolist() == noise[1].tolist()
    assert bench.sent[-1].codes == bench.sent[-2].codes


def test_rows_that_are_not_next_add_no_penalty(bench: StepBench) -> None:
    bench.own(0, epoch=1, tokens=9)
    bench.tables.options[0, Option.REPETITION_PENALTY] = 2.0
    bench.run((0, 0, [3]))
    bench.run((0, 0, [1]))
    bench.run((0, 1, [1, 2]))
    assert [record.codes[0] for record in bench.sent] == [3, 1]


OTHER_ROWS = {
    "no owner": (0, 0, 0),
    "warm-up far beyond": (0, 0, 4000),
    "part of the prefill": (1, 5, -3),
    "part of a recomputed prefill": (1, 5, 1),
    "a frame after the next one": (1, 5, 4),
    "the previous owner": (2, 6, 3),
}


@pytest.mark.parametrize(("slot", "epoch", "frame"), OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_other_rows_change_nothing_and_are_not_reported(bench: StepBench, slot: int, epoch: int, frame: int) -> None:
    bench.own(1, epoch=5)
    bench.own(2, epoch=4)
    bench.run_frames(1, 3)
    bench.run_frames(2, 3)
    bench.own(2, epoch=6)
    assert bench.tables.control[slot, Field.EPOCH] == epoch
    bench.sent.clear()
    before = bench.codes[: SHAPE.slots].clone()
    assert bench.run((slot, frame, [END, 9])) == [slot]
    assert bench.sent == []
    assert torch.equal(bench.codes[: SHAPE.slots], before)
    # Every slot's next frame is unchanged.
    bench.run((1, 3, [8]), (2, 0, [8]))
    assert [(record.slot, record.frame) for record in bench.sent] == [(1, 3), (2, 0)]


def test_other_rows_do_not_affect_a_frame_of_the_batch(bench: StepBench) -> None:
    bench.own(1, epoch=5)
    assert bench.run((0, 0, [3]), (1, 0, [4]), (2, 9, [END])) == [0, 1, 2]
    assert bench.sent == [FrameRecord(1, 5, 0, 0, [4, 5, 6, 7])]


def test_speech_resumes_where_a_recomputed_prefill_reaches_its_next_frame(bench: StepBench) -> None:
    bench.own(1, epoch=5)
    bench.run_frames(1, 3)
    bench.run((1, 1, [19]))
    bench.run((1, 3, [8]))
    assert [record.codes[0] for record in bench.sent] == [0, 1, 2, 8]
    assert bench.codes[1, :4, 0].tolist() == [0, 1, 2, 8]


def test_new_owner_starts_at_frame_zero(bench: StepBench) -> None:
    bench.own(1, epoch=5)
    bench.run_frames(1, 4)
    bench.own(1, epoch=6)
    bench.run((1, 0, [8]))
    assert (bench.sent[-1].epoch, bench.sent[-1].frame) == (6, 0)
