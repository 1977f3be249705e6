"""Flite's voices, through libflite 2.2: samples of a text with the times of phones and words."""

# ruff: noqa: SIM905 - a list of words is easier to read as one.

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_float, c_int, c_short, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
VOICES = ("slt", "rms", "awb")
PAUSE = "pau"
PHONES = (
    "pau aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z zh"
).split()
"""A phone's number is its index here."""

_PACKAGES = ("libflite1", "libasound2")


@dataclass(frozen=True, slots=True)
class FlitePhone:
    """A phone and its end."""

    name: str
    end_s: float


@dataclass(frozen=True, slots=True)
class FliteWord:
    """A word of the text, without punctuation, and its times."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class FliteReading:
    """Speech int16 [n] at 16 kHz, all phones in order, pauses included, and the spoken words."""

    samples: NDArray[np.int16]
    phones: list[FlitePhone]
    words: list[FliteWord]


class Flite:
    """One of flite's voices. Not thread-safe: use processes."""

    def __init__(self, voice: str, folder: Path | None = None) -> None:
        """Load the libraries from `folder`, by default from $FLITE_LIBRARIES or the system. Raises OSError."""
        if folder is None and (named := os.environ.get("FLITE_LIBRARIES")):
            folder = Path(named)
        self._flite = _load_flite(folder)
        library = _load(f"libflite_cmu_us_{voice}.so.1", folder)
        register = getattr(library, f"register_cmu_us_{voice}")
        register.argtypes, register.restype = [c_char_p], c_void_p
        self._voice = register(None)

    def read(self, text: str) -> FliteReading:
        """Read one or more sentences. Raises ValueError for a text without words."""
        flite = self._flite
        utterance = flite.flite_synth_text(text.encode("ascii", "ignore"), self._voice)
        if not utterance:
            raise ValueError(f"flite synthesised nothing for {text!r}")
        try:
            wave = flite.utt_wave(utterance)
            if not wave or wave.contents.sample_rate != RATE_HZ:
                raise ValueError(f"flite returned no audio for {text!r}")
            samples = np.ctypeslib.as_array(wave.contents.samples, (wave.contents.num_samples,)).copy()
            words = self._words(utterance)
            if not words:
                raise ValueError(f"the text has no words: {text!r}")
            return FliteReading(samples, self._phones(utterance), words)
        finally:
            flite.delete_utterance(utterance)

    def _phones(self, utterance: int) -> list[FlitePhone]:
        flite, phones = self._flite, []
        item = self._head(utterance, b"Segment")
        while item:
            phones.append(
                FlitePhone(flite.item_feat_string(item, b"name").decode(), flite.item_feat_float(item, b"end"))
            )
            item = flite.item_next(item)
        return phones

    def _words(self, utterance: int) -> list[FliteWord]:
        """The spoken tokens, which white space separates; each has words ("it's": "it", "'s"), syllables and phones."""
        flite, words = self._flite, []
        token = self._head(utterance, b"Token")
        while token:
            parts = [part for part in self._daughters(token) if self._word_phones(part)]
            if parts:
                first, last = self._word_phones(parts[0])[0], self._word_phones(parts[-1])[-1]
                before = flite.item_prev(first)
                start_s = flite.item_feat_float(before, b"end") if before else 0.0
                name = flite.item_feat_string(token, b"name").decode()
                words.append(FliteWord(name, start_s, flite.item_feat_float(last, b"end")))
            token = flite.item_next(token)
        return words

    def _word_phones(self, word: int) -> list[int]:
        """The phones of a word, as items of the relation `Segment`, which is in order of time."""
        structure = self._flite.item_as(word, b"SylStructure")
        syllables = self._daughters(structure) if structure else []
        return [self._flite.item_as(phone, b"Segment") for syllable in syllables for phone in self._daughters(syllable)]

    def _daughters(self, item: int) -> list[int]:
        daughters = []
        daughter = self._flite.item_daughter(item)
        while daughter:
            daughters.append(daughter)
            daughter = self._flite.item_next(daughter)
        return daughters

    def _head(self, utterance: int, relation: bytes) -> int | None:
        found = self._flite.utt_relation(utterance, relation)
        return self._flite.relation_head(found) if found else None


class _Wave(ctypes.Structure):
    """`cst_wave` of flite/include/cst_wave.h."""

    _fields_ = (
        ("type", c_char_p),
        ("sample_rate", c_int),
        ("num_samples", c_int),
        ("num_channels", c_int),
        ("samples", POINTER(c_short)),
    )


def _load_flite(folder: Path | None) -> ctypes.CDLL:
    """Load the libraries that a voice needs, and declare the functions of libflite."""
    _load("libasound.so.2", folder)
    flite = _load("libflite.so.1", folder)
    _load("libflite_cmulex.so.1", folder)
    _load("libflite_usenglish.so.1", folder)
    prototypes = {
        "flite_init": ([], c_int),
        "flite_synth_text": ([c_char_p, c_void_p], c_void_p),
        "delete_utterance": ([c_void_p], None),
        "utt_wave": ([c_void_p], POINTER(_Wave)),
        "utt_relation": ([c_void_p, c_char_p], c_void_p),
        "relation_head": ([c_void_p], c_void_p),
        "item_as": ([c_void_p, c_char_p], c_void_p),
        "item_next": ([c_void_p], c_void_p),
        "item_prev": ([c_void_p], c_void_p),
        "item_daughter": ([c_void_p], c_void_p),
        "item_feat_string": ([c_void_p, c_char_p], c_char_p),
        "item_feat_float": ([c_void_p, c_char_p], c_float),
    }
    for name, (arguments, result) in prototypes.items():
        function = getattr(flite, name)
        function.argtypes, function.restype = arguments, result
    flite.flite_init()
    return flite


def _load(name: str, folder: Path | None) -> ctypes.CDLL:
    inside = folder / name if folder else None
    # Global symbols, because the libraries depend on each other and may not be on the search path.
    return ctypes.CDLL(str(inside) if inside and inside.exists() else name, mode=ctypes.RTLD_GLOBAL)


def fetch(folder: Path) -> None:
    """Download Debian's flite, and unpack its libraries into `folder`; installs nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["apt-get", "download", *_PACKAGES], cwd=work, check=True, timeout=120)
        for package in Path(work).glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, work], check=True, timeout=60)
        needed = ["libasound", "libflite", "libflite_cmulex", "libflite_usenglish"]
        needed += [f"libflite_cmu_us_{voice}" for voice in VOICES]
        for name in needed:
            for library in Path(work).glob(f"usr/lib/*/{name}.so.[12]"):  # copies the targets of links
                shutil.copy(library, folder / library.name)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
