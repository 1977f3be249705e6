"""When words are heard, by the phone durations that flite knows of its own speech (Debian package `flite`).

The demo voices learnt from flite's. Both reading one text, one recording warps onto the other, and flite's word
boundaries go along.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import wave
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..codecs.resample import Resampler

Pcm = NDArray[np.float32]

RATE_HZ = 24_000
VOICES = ("slt", "rms", "awb")
"""Flite's voices that the demo voices of the same names learnt from."""
PAUSE = "pau"
HOP_MS = 10
_WINDOW_MS = 25
_BANDS = 40
_STEP_COST = 0.02
"""Of staying in one recording while the other goes on; keeps silences from wandering."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text read by flite: float32 [n] at 24 kHz, and where each word begins and ends in it."""

    pcm: Pcm
    spans_ms: list[tuple[float, float]]


def read(text: str, voice: str) -> Reading:
    """Raises FileNotFoundError without flite, CalledProcessError when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        timed = [item.split(":") for item in _flite(voice, "-psdur", "-t", text, "-o", str(path)).split()]
        with wave.open(str(path)) as recording:
            rate_hz = recording.getframerate()
            samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    resampler = Resampler(rate_hz, RATE_HZ)
    pcm = np.concatenate([resampler.push(samples.astype(np.float32) / np.float32(32768)), resampler.finish()])
    ends_ms = [1000 * float(end) for _, end in timed]
    sounds = [
        (phone, begin, end)
        for (phone, _), begin, end in zip(timed, [0.0, *ends_ms], ends_ms, strict=False)
        if phone != PAUSE
    ]
    owners = _owners([_phones(word, voice) for word in text.split()], [phone for phone, *_ in sounds])
    spans: list[tuple[float, float]] = []
    for word in range(len(text.split())):
        own = [sound for sound, owner in zip(sounds, owners, strict=True) if owner == word]
        spans.append((own[0][1], own[-1][2]) if own else (spans[-1][1],) * 2 if spans else (0.0, 0.0))
    return Reading(pcm, spans)


def _warp(reading: Pcm, speech: Pcm) -> tuple[list[int], list[int]]:
    """For each 10 ms of `reading` the first and the last 10 ms of `speech` on the cheapest path over log mel bands."""
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


def spans_ms(reading: Reading, speech: Pcm) -> list[tuple[float, float]]:
    """Where each word of the reading is heard in `speech`, float32 [n] at 24 kHz."""
    first, last = _warp(reading.pcm, speech)
    spans = []
    for begin_ms, end_ms in reading.spans_ms:
        # Longer silence around a word clings to its quiet edges: what counts is where the word leaves them.
        begin, end = math.ceil(begin_ms / HOP_MS), min(math.floor(end_ms / HOP_MS), len(first) - 1)
        spans.append((float(last[begin] * HOP_MS), float(max(first[end], last[begin]) * HOP_MS)))
    return spans


@cache
def _phones(word: str, voice: str) -> tuple[str, ...]:
    return tuple(phone for phone in _flite(voice, "-ps", "-t", word, "-o", "none").split() if phone != PAUSE)


def _flite(voice: str, *arguments: str) -> str:
    command = ["flite", "-voice", voice, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def _owners(words: list[tuple[str, ...]], phones: list[str]) -> list[int]:
    """Which word each phone belongs to: words sound a little different in company (the cheapest edits align them)."""
    alone = [(phone, word) for word, own in enumerate(words) for phone in own]
    cost = np.zeros((len(alone) + 1, len(phones) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(alone) + 1), np.arange(len(phones) + 1)
    for i, (expected, _) in enumerate(alone, 1):
        for j, heard in enumerate(phones, 1):
            cost[i, j] = min(cost[i - 1, j - 1] + (expected != heard), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    owners = [0] * len(phones)
    i, j = len(alone), len(phones)
    while j:
        owners[j - 1] = alone[max(i, 1) - 1][1]
        if i and cost[i, j] == cost[i - 1, j - 1] + (alone[i - 1][0] != phones[j - 1]):
            i, j = i - 1, j - 1
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return owners


def _features(pcm: Pcm) -> NDArray[np.float64]:
    """Log energies in mel bands every 10 ms, without each band's mean; float64 [t, 40]."""
    hop, size = RATE_HZ * HOP_MS // 1000, RATE_HZ * _WINDOW_MS // 1000
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
    hz = np.fft.rfftfreq(1024, 1 / RATE_HZ)
    up = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    bands: NDArray[np.float64] = np.clip(np.minimum(up, down), 0, None)
    return bands
