"""A teacher's reading of a text: samples at 24 kHz with the times of phones and words."""

# ruff: noqa: SIM905 - a list of words is easier to read as one.

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAUSE = "pau"
PHONES = (
    "pau aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z zh"
).split()
"""A phone's number is its index here."""


@dataclass(frozen=True, slots=True)
class TimedPhone:
    """A phone and its end."""

    name: str
    end_s: float


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word of the text, without punctuation, and its times."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Speech float32 [n] at 24 kHz, all phones in order, pauses included, and the spoken words."""

    samples: NDArray[np.float32]
    phones: list[TimedPhone]
    words: list[TimedWord]
