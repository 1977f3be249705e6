"""Errors of word times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from eval.session import SynthesizedUtterance
from eval.word_times import VOICE, figures, measure, measure_own
from train.speech.reading import PAUSE, Reading, TimedPhone, TimedWord
from voxgate.pipeline.interface import SamplingOptions, WordTime

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


class LateSpeaker:
    """Speaks as the teacher reads, half a second later, and reports the words' starts 30 ms before that."""

    async def speak(self, voice: str, written: str, *_: object, words: bool) -> SynthesizedUtterance:
        assert voice == VOICE
        assert words
        reading = EvenTeacher().read(written)
        pcm = np.concatenate([np.zeros(12_000, np.float32), reading.samples])
        starts_ms = [round(1000 * word.start_s) + 500 - 30 for word in reading.words]
        times = [WordTime("", 0, 0, start_ms, start_ms + 300) for start_ms in starts_ms]
        return SynthesizedUtterance(pcm, True, [], times)


async def test_words_of_the_voice_are_compared_with_the_reading_warped_onto_it() -> None:
    found = await measure_own(LateSpeaker(), SamplingOptions(), EvenTeacher(), 70)  # type: ignore[arg-type]
    assert found.words > 20
    assert 20 <= found.median_ms <= 40
    assert -40 <= found.late_ms <= -20
