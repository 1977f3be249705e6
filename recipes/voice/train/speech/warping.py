"""Finds the words of one recording in another of the same text by a similar voice, by dynamic time warping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

HOP_MS = 10
_RATE_HZ = 24_000
_WINDOW_MS = 25
_BANDS = 40
_STEP_COST = 0.02
"""Cost of a path step that advances in one recording only; it keeps silences aligned."""


def warped_spans(
    spans_ms: Sequence[tuple[float, float]], reading: NDArray[np.float32], speech: NDArray[np.float32]
) -> list[tuple[float, float]]:
    """The spans of `reading` in `speech`, both float32 [n] at 24 kHz; exact to about 20 ms."""
    first, last = _warp(reading, speech)
    spans = []
    for begin_ms, end_ms in spans_ms:
        # Silence around a word is warped onto the word's quiet edges, so the inner ends of those hops count.
        begin, end = math.ceil(begin_ms / HOP_MS), min(math.floor(end_ms / HOP_MS), len(first) - 1)
        spans.append((float(last[begin] * HOP_MS), float(max(first[end], last[begin]) * HOP_MS)))
    return spans


def _warp(reading: NDArray[np.float32], speech: NDArray[np.float32]) -> tuple[list[int], list[int]]:
    """For each hop of `reading`, the first and the last hop of `speech` on the cheapest path over log mel bands."""
    a, b = _features(reading), _features(speech)
    distance = np.sqrt(np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0)) / np.sqrt(_BANDS)
    total = np.full((len(a) + 1, len(b) + 1), np.inf)
    total[0, 0] = 0
    for i, row in enumerate(distance.tolist()):
        above, here = total[i].tolist(), [np.inf]
        for j, cost in enumerate(row):
            here.append(cost + min(above[j], above[j + 1] + _STEP_COST, here[j] + _STEP_COST))
        total[i + 1] = here
    i, j = len(a), len(b)
    first, last = [0] * len(a), [0] * len(a)
    while i and j:
        first[i - 1] = j - 1
        last[i - 1] = max(last[i - 1], j - 1)
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda at: total[at])
    return first, last


def _features(pcm: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log energies in mel bands every HOP_MS, less each band's mean: float64 [hops, _BANDS]."""
    hop, size = _RATE_HZ * HOP_MS // 1000, _RATE_HZ * _WINDOW_MS // 1000
    padded = np.pad(pcm.astype(np.float64), (size // 2, size))
    count = len(pcm) // hop + 1
    frames = np.stack([padded[n * hop : n * hop + size] for n in range(count)]) * np.hanning(size)
    power = np.abs(np.fft.rfft(frames, 1024)) ** 2
    bands: NDArray[np.float64] = np.log(power @ _mel_bands().T + 1e-4)
    centred: NDArray[np.float64] = bands - bands.mean(0)
    return centred


@cache
def _mel_bands() -> NDArray[np.float64]:
    mel = np.linspace(0, 2595 * np.log10(1 + 7600 / 700), _BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hz = np.fft.rfftfreq(1024, 1 / _RATE_HZ)
    up = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    bands: NDArray[np.float64] = np.clip(np.minimum(up, down), 0, None)
    return bands
