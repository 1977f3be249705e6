"""Extent of speech in audio."""

from __future__ import annotations

import numpy as np
import pytest
from eval.judging.sound import drift_db, level_db, resampled, speech_extent


def sound(*parts: tuple[float, float]) -> np.ndarray:
    """Audio at 24 kHz of parts with durations in seconds and levels."""
    return np.concatenate([np.full(round(seconds * 24_000), level, np.float32) for seconds, level in parts])


def test_leading_silence_speech_and_pauses_are_measured() -> None:
    extent = speech_extent(sound((0.2, 0), (0.5, 0.1), (0.3, 0), (0.4, 0.1), (0.6, 0)))
    assert extent.leading_silence_s == pytest.approx(0.2)
    assert extent.speech_s == pytest.approx(1.2)
    assert extent.pauses_s == pytest.approx(0.3)


def test_short_silence_is_no_pause() -> None:
    assert speech_extent(sound((0.3, 0.1), (0.1, 0), (0.3, 0.1))).pauses_s == 0


def test_click_is_not_speech() -> None:
    assert speech_extent(sound((0.01, 0.1), (0.19, 0), (0.5, 0.1))).leading_silence_s == pytest.approx(0.2)


@pytest.mark.parametrize("seconds", [0.0, 0.004, 1.0])
def test_silence_is_all_leading(seconds: float) -> None:
    extent = speech_extent(sound((seconds, 0)))
    assert extent.leading_silence_s == int(seconds * 100) / 100
    assert extent.speech_s == 0


def test_level_is_that_of_speech_without_pauses() -> None:
    assert level_db(sound((1, 0.1), (2, 0), (0.5, 0.1))) == pytest.approx(-20, abs=1e-3)
    assert level_db(sound((1, 0.1), (1, 0.01))) == pytest.approx(-20, abs=1e-3)
    assert level_db(sound((1, 0))) is None


def test_drift_is_from_first_to_last_third() -> None:
    assert drift_db(sound((3, 0.1), (3, 0.3), (3, 0.05))) == pytest.approx(-6.02, abs=0.01)
    assert drift_db(sound((3, 0.1), (6, 0))) is None


def test_audio_is_resampled() -> None:
    samples = resampled(sound((1, 0.5)), 24_000, 16_000)
    assert len(samples) == 16_000
    assert samples[2000:-2000] == pytest.approx(0.5, abs=1e-3)
