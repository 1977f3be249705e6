"""Kokoro-82M, the teacher of several voices: its ONNX model of 8-bit weights, at three quarters of real time.

It needs no GPU, unlike the network of the recipe (`train.speech.kokoro_network`), which has the same weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from train.speech.kokoro_weights import STYLE, VOICES, fetch_model, fetch_styles
from train.speech.phonemes import Phonemizer
from train.speech.reading import Reading

__all__ = ["GAINS", "VOICES", "Kokoro", "unpacked"]
GAINS = {"michael": 1.35, "emma": 1.0, "george": 1.05}
"""Make the voices about as loud as hibari's."""
_MODEL, _STYLES = "kokoro.onnx", "styles.npy"


def unpacked(folder: Path) -> Path:
    """The folder, into which the packages are downloaded and unpacked if it lacks them. Raises ValueError."""
    if not (folder / _MODEL).exists():
        folder.mkdir(parents=True, exist_ok=True)
        styles = fetch_styles(folder, VOICES)
        np.save(folder / _STYLES, np.stack([styles[STYLE + voice] for voice in VOICES]))
        unfinished = folder / f"{_MODEL}.part"
        unfinished.write_bytes(fetch_model(folder))
        unfinished.replace(folder / _MODEL)
    return folder


class Kokoro:
    """The teacher in one voice. Not thread-safe: use processes."""

    def __init__(self, voice: str, folder: Path, hibari: Path) -> None:
        """`voice`: of `VOICES`. `folder`: of `unpacked`. `hibari`: of `train.speech.hibari.unpacked`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(folder / _MODEL, options, providers=["CPUExecutionProvider"])
        self._phonemizer = Phonemizer(hibari, british=VOICES[voice].startswith("b"))
        self._styles: NDArray[np.float32] = np.load(folder / _STYLES)[list(VOICES).index(voice)]

    def read(self, spoken: str) -> Reading:
        """Read a sentence in its spoken form, without times of phones and words. Raises ValueError for a long one."""
        text = self._phonemizer.read(spoken)
        count = len(text.phonemes)
        if not 0 < count <= len(self._styles):
            raise ValueError(f"a sentence must have 1 to {len(self._styles)} phonemes, got {count}: {spoken!r}")
        inputs = {
            "tokens": np.array([text.ids], np.int64),
            "style": self._styles[count - 1][None],
            "speed": np.ones(1, np.float32),
        }
        samples: NDArray[np.float32] = self._session.run(None, inputs)[0].ravel()
        return Reading(samples, [], [])
