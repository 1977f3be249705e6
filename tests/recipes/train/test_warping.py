"""Finding the words of one recording in another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from train.speech.warping import warped_spans

SPANS_MS = [(100.0, 350.0), (350.0, 500.0), (640.0, 900.0)]


def reading() -> NDArray[np.float32]:
    """A second in which each span has two tones of its own, with faint noise around them."""
    rng = np.random.default_rng(7)
    pcm = rng.normal(0, 1e-3, 24_000)
    for number, (start_ms, end_ms) in enumerate(SPANS_MS):
        start, end = int(24 * start_ms), int(24 * end_ms)
        middle = (start + end) // 2
        for low, high, hz in ((start, middle, 300 + 900 * number), (middle, end, 700 + 900 * number)):
            pcm[low:high] += 0.2 * np.sin(2 * np.pi * hz / 24_000 * np.arange(high - low))
    return pcm.astype(np.float32)


def test_spans_move_with_the_speech() -> None:
    pcm = reading()
    late = np.concatenate([np.zeros(7200, np.float32), pcm, np.zeros(2400, np.float32)])
    assert np.abs(np.array(warped_spans(SPANS_MS, pcm, late)) - np.array(SPANS_MS) - 300).max() <= 25


def test_spans_follow_speech_of_varying_speed() -> None:
    pcm = reading()
    # Every second stretch of 50 ms twice: speech at two thirds of the pace.
    parts = [pcm[at : at + 1200] for at in range(0, len(pcm), 1200)]
    slow = np.concatenate([part for n, part in enumerate(parts) for _ in range(1 + n % 2)])
    want = np.interp(np.array(SPANS_MS), [0, len(pcm) / 24], [0, len(slow) / 24])
    assert np.abs(np.array(warped_spans(SPANS_MS, pcm, slow)) - want).max() <= 80
