"""Flite's voices, which the demo voice imitates, through libflite 2.2."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_int, c_short, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
VOICES = ("slt", "rms", "awb")
_PACKAGES = ("libflite1", "libasound2")


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

    def read(self, text: str) -> NDArray[np.int16]:
        """Read one or more sentences: int16 [n] at 16 kHz. Raises ValueError for a text without words."""
        utterance = self._flite.flite_synth_text(text.encode("ascii", "ignore"), self._voice)
        if not utterance:
            raise ValueError(f"flite synthesised nothing for {text!r}")
        try:
            wave = self._flite.utt_wave(utterance)
            if not wave or wave.contents.sample_rate != RATE_HZ or not wave.contents.num_samples:
                raise ValueError(f"flite returned no audio for {text!r}")
            return np.ctypeslib.as_array(wave.contents.samples, (wave.contents.num_samples,)).copy()
        finally:
            self._flite.delete_utterance(utterance)


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
