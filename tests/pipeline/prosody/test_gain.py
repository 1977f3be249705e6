"""Volume: exact at 1, ramped where it changes, limited where it would clip."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.prosody.gain import RAMP_SAMPLES, Gain

TONE = (0.5 * np.sin(2 * np.pi * 200 * np.arange(4800) / 24_000)).astype(np.float32)


def test_volume_of_one_leaves_samples_as_they_are() -> None:
    assert Gain().apply(TONE) is TONE


@pytest.mark.parametrize("volume", [0.0, 0.25, 0.9, 1.1, 1.5])
def test_speech_below_the_limit_is_multiplied(volume: float) -> None:
    assert np.allclose(Gain(volume).apply(TONE), TONE * volume)


@pytest.mark.parametrize("volume", [1.05, 1.5, 2.0])
def test_loud_speech_does_not_clip_and_keeps_its_order(volume: float) -> None:
    ramp = np.linspace(-1, 1, 2001, dtype=np.float32)
    loud = Gain(volume).apply(ramp)
    assert np.abs(loud).max() <= 1
    assert (np.diff(loud) >= 0).all()
    assert np.abs(loud).max() > 0.95


@pytest.mark.parametrize(("before", "after"), [(1.0, 2.0), (2.0, 1.0), (0.0, 1.0), (1.5, 0.0)])
def test_change_is_spread_over_the_ramp(before: float, after: float) -> None:
    gain, level = Gain(before), np.full(RAMP_SAMPLES, 0.4, np.float32)
    gain.change(after)
    ramped = gain.apply(level)
    assert np.abs(np.diff(ramped)).max() < 2 * 0.4 * abs(after - before) / RAMP_SAMPLES
    assert ramped[-1] == pytest.approx(0.4 * after, abs=0.01)
    assert np.allclose(gain.apply(level), 0.4 * after, atol=1e-6)


def test_samples_are_as_they_are_again_behind_a_ramp_to_one() -> None:
    gain = Gain(2.0)
    gain.change(1.0)
    gain.apply(TONE)
    assert gain.apply(TONE) is TONE


def test_result_does_not_depend_on_how_samples_are_divided() -> None:
    results = []
    for size in (4800, 100, 7):
        gain, parts = Gain(0.5), []
        for at in range(0, 4800, size):
            if at in (0, 1400, 2100):  # the second change begins within the ramp of the first
                gain.change({0: 1.8, 1400: 1.8, 2100: 1.0}[at])
            parts.append(gain.apply(TONE[at : at + size]))
        results.append(np.concatenate(parts))
    assert np.array_equal(results[1], results[2])


def test_change_within_a_ramp_begins_where_that_is() -> None:
    gain, level = Gain(0.0), np.full(RAMP_SAMPLES // 2, 0.4, np.float32)
    gain.change(1.0)
    first = gain.apply(level)
    gain.change(0.0)
    second = gain.apply(level)
    assert abs(second[0] - first[-1]) < 0.01
