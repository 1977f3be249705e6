"""The source voices, which a voice imitates: hibari's, Kokoro's and flite's, at 24 kHz."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from train.speech import hibari
from train.speech.reading import Reading
from train.speech.synthesis import GAIN, sentence
from voxgate.codecs.pcm import SAMPLE_RATE_HZ

from ..judging.sound import resampled
from . import flite, kokoro

VOICES = (hibari.VOICE, *kokoro.VOICES, *flite.VOICES)


class Sources:
    """The source voices. Their packages, and readings that take long, are kept in a folder. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._flite: dict[str, flite.Flite] = {}
        self._kokoro: dict[str, kokoro.Kokoro] = {}

    def read(self, voice: str, spoken: str) -> NDArray[np.float32]:
        """The source's reading of a text in its spoken form, float32 [n]. Raises OSError without its files."""
        if voice in flite.VOICES:
            if voice not in self._flite:
                self._flite[voice] = flite.Flite(voice)
            samples = self._flite[voice].read(spoken)
            return resampled(samples.astype(np.float32) / np.float32(32768), flite.RATE_HZ, SAMPLE_RATE_HZ)
        if voice == hibari.VOICE:
            return _float(_joined([self.hibari.read(part) for part in _sentences(spoken)], GAIN))
        return _float(self._kept(voice, spoken))

    @cached_property
    def hibari(self) -> hibari.Hibari:
        """The teacher whose word times are known."""
        return hibari.Hibari(hibari.unpacked(self._folder / "hibari"))

    def _kept(self, voice: str, spoken: str) -> NDArray[np.int16]:
        """Kokoro's reading, which takes nearly as long as the speech lasts."""
        gain = kokoro.GAINS[voice]
        digest = hashlib.sha256(f"{gain} {spoken}".encode()).hexdigest()[:24]
        path = self._folder / "readings" / voice / f"{digest}.npy"
        if not path.exists():
            teacher = self._open_kokoro(voice)
            samples = _joined([teacher.read(part) for part in _sentences(spoken)], gain)
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".tmp.npy")
            np.save(unfinished, samples)
            unfinished.replace(path)
        kept: NDArray[np.int16] = np.load(path)
        return kept

    def _open_kokoro(self, voice: str) -> kokoro.Kokoro:
        if voice not in self._kokoro:
            folders = kokoro.unpacked(self._folder / "kokoro"), hibari.unpacked(self._folder / "hibari")
            self._kokoro[voice] = kokoro.Kokoro(voice, *folders)
        return self._kokoro[voice]


def _sentences(spoken: str) -> list[str]:
    """The teachers read one sentence at a time."""
    return re.split(r"(?<=[.?!])\s+", spoken)


def _joined(readings: list[Reading], gain: float) -> NDArray[np.int16]:
    """Sentences, with less silence around them than the teachers make, one after the other."""
    return np.concatenate([sentence(reading, gain).samples for reading in readings])


def _float(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    return samples.astype(np.float32) / np.float32(32768)
