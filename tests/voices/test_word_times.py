from __future__ import annotations

import numpy as np
import pytest
from voxgate.voices.demo.train import speech
from voxgate.voices.demo.train.check_word_times import known
from voxgate.voices.demo.train.flite import PHONES, Phone, Reading, Word
from voxgate.voices.demo.train.speech import sentence
from voxgate.voices.demo.train.word_times import Counts, tables

PAU, DH, AX, S, IY = (PHONES.index(name) for name in ("pau", "dh", "ax", "s", "iy"))

READING = Reading(
    np.zeros(16_000, np.int16),
    [Phone("pau", 0.2), Phone("dh", 0.24), Phone("ax", 0.3), Phone("s", 0.46), Phone("iy", 0.62), Phone("pau", 0.9)],
    [Word("the", 0.2, 0.3), Word("sea", 0.3, 0.62)],
)
"""The sea: 40, 60, 160 and 160 ms, behind 200 ms of silence."""
LEAD_S = 0.1
SILENT = 5
"""Moments of 20 ms before the first sound."""


@pytest.fixture(autouse=True)
def _lead_of_whole_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "LEAD_S", LEAD_S)
    monkeypatch.setattr(speech, "HEARD_BY_S", LEAD_S)


def counted() -> Counts:
    counts = Counts()
    read = sentence(READING)
    counts.add(READING, read, np.arange(read.frames, dtype=np.int16))
    return counts


def test_codes_are_counted_with_the_phones_of_their_frames() -> None:
    counts = counted()
    frames = sentence(READING).frames
    heard = counts.codes[:frames].argmax(axis=2).ravel().tolist()
    lead = SILENT
    spoken = [DH] * 2 + [AX] * 3 + [S] * 8 + [IY] * 8
    assert heard == [PAU] * lead + spoken + [PAU] * (4 * frames - lead - len(spoken))
    assert counts.codes.sum() == 4 * frames
    assert counts.phones[[PAU, DH, AX, S, IY]].tolist() == [2, 1, 1, 1, 1]


def test_words_are_counted_with_their_phones() -> None:
    assert counted().words == {("the", (DH, AX)): 1, ("sea", (S, IY)): 1}


def test_a_code_tells_what_was_heard_with_it_and_an_unheard_one_nothing() -> None:
    made = tables(counted())
    likelier, usual = made["likelier"], made["usual"]
    np.testing.assert_allclose((likelier * usual).sum(axis=2), 1)
    np.testing.assert_allclose(likelier[500], 1)
    frame, moment = divmod(SILENT + 2, 4)
    assert likelier[frame, moment].argmax() == AX
    assert likelier[frame, moment, AX] > 1 > likelier[frame, moment, S]
    assert made["moments"][[AX, S]].tolist() == [3, 8]


def test_the_truth_is_in_the_time_of_the_sentence() -> None:
    np.testing.assert_allclose(
        known(READING, sentence(READING)), np.array([[0, 100], [100, 420]]) + 1000 * LEAD_S, atol=1
    )
