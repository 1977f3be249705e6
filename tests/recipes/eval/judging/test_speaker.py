"""The embedding of speakers; the encoder's test is skipped unless `scripts/eval-voice` has installed it."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from eval.judging.speaker import SpeakerJudge, mel_filters


def test_filters_overlap_and_have_equal_areas() -> None:
    filters = mel_filters()
    assert filters.shape == (40, 201)
    # An area of 1 Hz in bins of 40 Hz; narrow filters have few bins.
    assert filters[10:].sum(1) * 40 == pytest.approx(1, abs=0.06)
    peaks_hz = filters.argmax(1) * 40
    assert (np.diff(peaks_hz) > 0).all()
    assert peaks_hz[-1] < 8000


@pytest.mark.skipif(find_spec("resemblyzer") is None, reason="scripts/eval-voice has not installed it")
def test_embedding_is_of_the_speaker_not_of_the_level() -> None:
    encoder = SpeakerJudge()
    time_s = np.arange(32_000) / 16_000
    low, high = (
        sum(np.sin(2 * np.pi * hz * n * time_s) / n for n in range(1, 12)).astype(np.float32) / 10 for hz in (110, 230)
    )
    assert encoder.embed(low) @ encoder.embed(low / 4) > 0.999
    assert encoder.embed(low) @ encoder.embed(high) < 0.9
    assert encoder.embed(low[:4000]).shape == (256,)
