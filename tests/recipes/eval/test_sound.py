from __future__ import annotations

import numpy as np
import pytest
from eval.sound import for_listening, shape


def sound(*parts: tuple[float, float]) -> np.ndarray:
    """Seconds and level of each part, 24 kHz."""
    return np.concatenate([np.full(round(seconds * 24_000), level, np.float32) for seconds, level in parts])


def test_lead_span_and_pauses() -> None:
    form = shape(sound((0.2, 0), (0.5, 0.1), (0.3, 0), (0.4, 0.1), (0.6, 0)))
    assert form.lead_s == pytest.approx(0.2)
    assert form.span_s == pytest.approx(1.2)
    assert form.pauses_s == pytest.approx(0.3)


def test_a_short_silence_belongs_to_the_word() -> None:
    assert shape(sound((0.3, 0.1), (0.1, 0), (0.3, 0.1))).pauses_s == 0


def test_a_click_is_no_beginning() -> None:
    assert shape(sound((0.01, 0.1), (0.19, 0), (0.5, 0.1))).lead_s == pytest.approx(0.2)


@pytest.mark.parametrize("seconds", [0.0, 0.004, 1.0])
def test_without_sound_all_is_lead(seconds: float) -> None:
    form = shape(sound((seconds, 0)))
    assert form.lead_s == int(seconds * 100) / 100
    assert form.span_s == 0


def test_the_recogniser_gets_two_thirds_of_the_samples_and_nothing_wraps() -> None:
    samples = for_listening(sound((1, 1.5)))
    assert len(samples) == 16_000
    assert samples.min() >= -10
    assert samples.max() == 32767
