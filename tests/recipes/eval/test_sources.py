"""Readings of the source voices that are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from eval.sources import VOICES, Sources, kokoro
from train.speech.reading import Reading


class OneTone:
    """A teacher that makes a second of tone between silences, and counts its readings."""

    def __init__(self) -> None:
        self.read_texts: list[str] = []

    def read(self, spoken: str) -> Reading:
        self.read_texts.append(spoken)
        samples = np.zeros(48_000, np.float32)
        samples[12_000:36_000] = 0.1
        return Reading(samples, [], [])


def test_slow_readings_are_made_once_and_sentence_by_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = OneTone()
    monkeypatch.setattr(Sources, "_open_kokoro", lambda *_: teacher)
    first = Sources(tmp_path).read("emma", "one, two. three?")
    assert teacher.read_texts == ["one, two.", "three?"]
    assert np.array_equal(Sources(tmp_path).read("emma", "one, two. three?"), first)
    assert len(teacher.read_texts) == 2
    Sources(tmp_path).read("george", "one, two. three?")
    assert len(teacher.read_texts) == 4
    # Two seconds of sound, each with short silences, in whole frames.
    assert 2.4 <= len(first) / 24_000 <= 2.7
    assert np.abs(first).max() == pytest.approx(0.1 * kokoro.GAINS["emma"], abs=1e-3)


def test_every_voice_has_one_source() -> None:
    assert len(set(VOICES)) == len(VOICES) == 7
