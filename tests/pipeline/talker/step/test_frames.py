"""Frames: drawn, stored, reported and answered; what goes wrong goes wrong alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from voxgate.pipeline.talker.frames import FrameFlag
from voxgate.pipeline.talker.sampling import Candidates
from voxgate.pipeline.talker.tables import Field, Option

from .bench import BOOK, PREFIX, SHAPE, Bench, Record


def test_a_frame_is_stored_reported_and_answered_with_its_slot(bench: Bench) -> None:
    bench.own(2, epoch=7)
    assert bench.take((2, 0, [11])) == [2]
    assert bench.sent == [Record(2, 7, 0, 0, [11, 12, 13, 14])]
    assert bench.codes[2, 0].tolist() == [11, 12, 13, 14]


def test_frames_of_a_batch_go_out_in_one_message(bench: Bench) -> None:
    messages: list[bytes] = []
    bench.step._report = messages.append
    bench.own(0, epoch=1)
    bench.own(3, epoch=2)
    bench.take((3, 0, [4]), (0, 0, [5]))
    assert [np.frombuffer(m, np.int32).reshape(2, -1)[:, :5].tolist() for m in messages] == [
        [[3, 2, 0, 0, 4], [0, 1, 0, 0, 5]]
    ]


def test_special_ids_are_never_drawn(bench: Bench) -> None:
    bench.own(0, epoch=1)
    hidden = torch.ones(1, BOOK + 1)
    bench.step(hidden, torch.tensor([0]), torch.tensor([PREFIX]))
    assert bench.sent[0].codes[0] < BOOK


def test_sampled_frames_draw_by_the_noise_of_their_seed_and_number(bench: Bench) -> None:
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


def test_the_predictor_gets_noise_of_its_own_only_where_it_samples(bench: Bench) -> None:
    bench.own(0, epoch=1)
    bench.own(1, epoch=2)
    bench.tables.options[1, Option.PREDICTOR_TEMPERATURE] = 0.9
    bench.take((0, 0, [1]), (1, 0, [1]))
    (noise,) = bench.predictor.noise
    assert noise.shape == (2, 3)
    assert not noise[0].any()
    assert len(set(noise[1].tolist())) == 3


def test_numbers_that_are_none_end_their_generation_only(bench: Bench) -> None:
    for slot, epoch in ((0, 5), (1, 6), (2, 7)):
        bench.own(slot, epoch)
    hidden = torch.zeros(3, BOOK + 1)
    hidden[:, 4] = 5.0
    hidden[1, 9] = torch.nan
    tokens = bench.step(hidden, torch.tensor([0, 1, 2]), torch.full((3,), PREFIX))
    assert tokens.tolist() == [0, SHAPE.end_token, 2]
    assert [record.flags for record in bench.sent] == [0, FrameFlag.END | FrameFlag.FAILED, 0]
    assert [record.codes[0] for record in bench.sent[::2]] == [4, 4]
    assert bench.take((0, 1, [3]), (2, 1, [3])) == [0, 2], "the others go on"


def test_a_generation_that_makes_the_step_raise_ends_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(_hidden: Tensor, first: Tensor, _candidates: Candidates, _noise: Tensor) -> Tensor:
        if bool((first == 13).any()):
            raise RuntimeError("index out of range")
        return first[:, None] + torch.arange(1, 4)

    monkeypatch.setattr(bench.step, "_predictor", predict)
    for slot, epoch in ((0, 5), (1, 6), (2, 7)):
        bench.own(slot, epoch)
    assert bench.take((0, 0, [4]), (1, 0, [13]), (2, 0, [5])) == [0, SHAPE.end_token, 2]
    assert [record.flags for record in bench.sent] == [0, FrameFlag.END | FrameFlag.FAILED, 0]
    assert [record.codes[0] for record in bench.sent[::2]] == [4, 5]
