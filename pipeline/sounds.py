"""What a word should sound like, coarsely, and how near to that a moment of audio is.

Five kinds of sound can be told apart by loudness and brightness alone, and guessed from spelling alone: enough to
follow a known text through its speech, whoever speaks it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from .ear import MOMENT_MS
from .speech import SAMPLE_RATE_HZ, Pcm

Vector = NDArray[np.float64]
Costs = NDArray[np.float64]
"""What each kind of sound would cost in each moment, [m, 6]."""

MOMENT_SAMPLES = SAMPLE_RATE_HZ * MOMENT_MS // 1000


class Sound(IntEnum):
    PAUSE = 0
    VOWEL = 1
    SONORANT = 2
    """m, n, l, r, w: as loud as a vowel, and darker."""
    HISS = 3
    """s, sh, f and their like: bright."""
    STOP = 4
    """p, t, k and their like: a gap with a click at its end."""
    ANY = 5
    """Nothing is known about it, such as a digit."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a word: what it sounds like and how long at an ordinary pace."""

    sound: Sound
    ms: float


_MS = {Sound.VOWEL: 105.0, Sound.SONORANT: 90.0, Sound.HISS: 75.0, Sound.STOP: 40.0}
_LETTER_MS = 75.0
"""Of a letter in a script that the rules below do not know."""
_WIDE_MS = 190.0
"""Of a character that is a syllable or more."""
_SPELLED_MS = 260.0
"""Of a digit, a symbol that is read out, or a letter of an abbreviation."""
_READ_OUT = frozenset("$€£%&+=@")

# Spelling of English, and roughly of most that use Latin letters. The first rule that fits wins.
_SPELLING: tuple[tuple[str, tuple[Sound, ...]], ...] = (
    (r"gh(?=t|$)|^k(?=n)|^w(?=r)|(?<=[aeiouy][^aeiouy])e(?=s?$)|(?<=[aeiouy][^aeiouy]{2})e(?=s?$)|'", ()),
    (r"[ts]ion", (Sound.HISS, Sound.VOWEL, Sound.SONORANT)),
    (r"qu", (Sound.STOP, Sound.SONORANT)),
    (r"x", (Sound.STOP, Sound.HISS)),
    (r"^y|(?<=[aeiou])y(?=[aeiou])|wh|w", (Sound.SONORANT,)),
    (r"[aeiouy]+", (Sound.VOWEL,)),
    (r"th", (Sound.STOP,)),
    (r"t?ch|sch|sh|ph|ss|s|ff|f|zz|z|h|c(?=[eiy])|j", (Sound.HISS,)),
    (r"ng|mm|m|nn|n|ll|l|rr|r", (Sound.SONORANT,)),
    (r"ck|(?P<twice>[bdgkpt])(?P=twice)|[a-z]", (Sound.STOP,)),
)
_RULES = tuple((re.compile(pattern), sounds) for pattern, sounds in _SPELLING)

_LEVEL = np.array([-51.0, -6.5, -7.0, -23.0, -25.0])
_LEVEL_SPREAD = np.array([10.0, 5.0, 6.5, 11.0, 14.0])
"""Of each kind, in dB against the loudest so far, and likewise the brightness; measured on the demo voice."""
_BRIGHTNESS = np.array([-1.9, -2.0, -2.3, -0.4, -1.5])
_BRIGHTNESS_SPREAD = np.array([0.8, 0.4, 0.4, 0.9, 1.0])
_LOUD_RMS = 0.1
"""Speech is taken to be at least this loud before any was heard."""
_WORST = 6.4
"""Neither measure of a single moment speaks more than this against a sound."""
_FLOOR = 1e-8
"""Power (-80 dB) that hides what is quieter, with a brightness of its own."""
_FLOOR_BRIGHTNESS = 10**-1.9
_ANY_COST = 2.3


def parts_of(word: str) -> list[Part]:
    """The sounds of a word, or of a part of one, as written; punctuation has none."""
    bare = "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
    spelled = len(bare) > 1 and bare.isupper() and not set(bare) & set("AEIOUY")
    parts: list[Part] = []
    for run in re.finditer(r"[A-Za-z']+|.", bare):
        text = run[0]
        if text[0].isascii() and text[0].isalpha():
            if spelled:
                parts += [Part(Sound.ANY, _SPELLED_MS)] * len(text)
            else:
                parts += [Part(sound, _MS[sound]) for sound in _sounds(text.lower())]
        elif text.isdigit() or text in _READ_OUT:
            parts.append(Part(Sound.ANY, _SPELLED_MS))
        elif text.isalpha():
            parts.append(Part(Sound.ANY, _WIDE_MS if text >= "\u3040" else _LETTER_MS))
    return parts


def _sounds(letters: str) -> list[Sound]:
    sounds: list[Sound] = []
    at = 0
    while at < len(letters):
        for rule, found in _RULES:
            if match := rule.match(letters, at):
                sounds += found
                at = match.end()
                break
        else:
            raise AssertionError(f"no rule for {letters[at:]!r}")
    return sounds


class Listener:
    """Measures moments of 20 ms and says how unlike each kind of sound they are."""

    def __init__(self) -> None:
        self._rest: Pcm = np.zeros(0, np.float32)
        self._last = np.float32(0)
        self._loudest = _LOUD_RMS

    def hear(self, pcm: Pcm) -> Costs:
        """The next audio, float32 [n] at 24 kHz; the cost of each `Sound` in each whole moment, float64 [m, 6]."""
        pcm = np.concatenate([self._rest, pcm]) if len(self._rest) else pcm
        count = len(pcm) // MOMENT_SAMPLES
        self._rest = pcm[count * MOMENT_SAMPLES :].copy()
        whole = pcm[: count * MOMENT_SAMPLES]
        if not count:
            return np.zeros((0, len(Sound)))
        change = np.diff(whole, prepend=self._last)
        self._last = whole[-1]
        power = _moment_energy(whole)
        loudest = np.maximum.accumulate(np.concatenate([[self._loudest], np.sqrt(power)]))[1:]
        self._loudest = float(loudest[-1])
        level = np.maximum(10 * np.log10(power + _FLOOR) - 20 * np.log10(loudest), _LEVEL[Sound.PAUSE])
        brightness = np.log10((_moment_energy(change) + _FLOOR * _FLOOR_BRIGHTNESS) / (power + _FLOOR))
        costs = _unlike(level, _LEVEL, _LEVEL_SPREAD) + _unlike(brightness, _BRIGHTNESS, _BRIGHTNESS_SPREAD)
        return np.concatenate([costs, np.full((count, 1), _ANY_COST)], axis=1)


def _unlike(measured: Vector, mean: Vector, spread: Vector) -> NDArray[np.float64]:
    """How little each measurement is like each of normal distributions; float64 [measurements, distributions]."""
    cost: NDArray[np.float64] = ((measured[:, None] - mean) / spread) ** 2 / 2
    capped: NDArray[np.float64] = np.minimum(cost, _WORST) + np.log(spread)
    return capped


def _moment_energy(pcm: Pcm) -> NDArray[np.float64]:
    moments = pcm.reshape(-1, MOMENT_SAMPLES).astype(np.float64)
    energy: NDArray[np.float64] = np.einsum("ij,ij->i", moments, moments) / MOMENT_SAMPLES
    return energy
