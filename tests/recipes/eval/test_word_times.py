"""Errors of word times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from eval.word_times import figures, measure
from train.speech.reading import PAUSE, Reading, TimedPhone, TimedWord

DEMO = Path(__file__).parents[3] / "voices" / "demo"


def test_errors_have_a_median_and_a_sign() -> None:
    found = figures([-10.0, -30.0, 20.0])
    assert (found.words, found.median_ms, found.late_ms) == (3, 20, -10)
    assert found.p90_ms == pytest.approx(28)


class EvenTeacher:
    """Reads every word in 0.3 s of noise."""

    def read(self, spoken: str) -> Reading:
        words = spoken.split()
        samples = np.random.default_rng(0).normal(0, 0.05, 7200 * len(words)).astype(np.float32)
        timed = [TimedWord(word, 0.3 * number, 0.3 * (number + 1)) for number, word in enumerate(words)]
        return Reading(samples, [TimedPhone(PAUSE, 0.3 * len(words))], timed)


def test_every_word_of_the_sentences_is_aligned() -> None:
    found = measure(DEMO, lambda samples: np.zeros(len(samples) // 1920, np.int16), EvenTeacher(), 70)
    assert found is not None
    assert found.words > 20
    assert 0 < found.median_ms < 1000
