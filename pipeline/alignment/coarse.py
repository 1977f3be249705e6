"""What a word should sound like, coarsely, and how near to that a moment of audio is.

Five kinds of sound can be told apart by loudness and brightness alone, and guessed from spelling alone: enough to
follow a known text through its speech, whoever speaks it.
"""
# TODO-DOC Hears a voice of which nothing is known: words by the kinds of sound in them (`sounds.py`).

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm

from .scorer import HOP_MS, Codes, CommitPolicy, Costs, Features, StateSequence

Vector = NDArray[np.float64]
ClassCosts = NDArray[np.float64]
"""What each kind of sound would cost in each moment, [m, 6]."""

HOP_SAMPLES = SAMPLE_RATE_HZ * HOP_MS // 1000


class PhoneClass(IntEnum):
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
class ClassSpan:
    """A stretch of a word: what it sounds like and how long at an ordinary pace."""

    sound: PhoneClass
    ms: float


_MS = {PhoneClass.VOWEL: 105.0, PhoneClass.SONORANT: 90.0, PhoneClass.HISS: 75.0, PhoneClass.STOP: 40.0}
_LETTER_MS = 75.0
"""Of a letter in a script that the rules below do not know."""
_WIDE_MS = 190.0
"""Of a character that is a syllable or more."""
_SPELLED_MS = 260.0
"""Of a digit, a symbol that is read out, or a letter of an abbreviation."""
_READ_OUT = frozenset("$€£%&+=@")

# Spelling of English, and roughly of most that use Latin letters. The first rule that fits wins.
_SPELLING: tuple[tuple[str, tuple[PhoneClass, ...]], ...] = (
    (r"gh(?=t|$)|^k(?=n)|^w(?=r)|(?<=[aeiouy][^aeiouy])e(?=s?$)|(?<=[aeiouy][^aeiouy]{2})e(?=s?$)|'", ()),
    (r"[ts]ion", (PhoneClass.HISS, PhoneClass.VOWEL, PhoneClass.SONORANT)),
    (r"qu", (PhoneClass.STOP, PhoneClass.SONORANT)),
    (r"x", (PhoneClass.STOP, PhoneClass.HISS)),
    (r"^y|(?<=[aeiou])y(?=[aeiou])|wh|w", (PhoneClass.SONORANT,)),
    (r"[aeiouy]+", (PhoneClass.VOWEL,)),
    (r"th", (PhoneClass.STOP,)),
    (r"t?ch|sch|sh|ph|ss|s|ff|f|zz|z|h|c(?=[eiy])|j", (PhoneClass.HISS,)),
    (r"ng|mm|m|nn|n|ll|l|rr|r", (PhoneClass.SONORANT,)),
    (r"ck|(?P<twice>[bdgkpt])(?P=twice)|[a-z]", (PhoneClass.STOP,)),
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


def class_spans(word: str) -> list[ClassSpan]:
    """The sounds of a word, or of a part of one, as written; punctuation has none."""
    bare = "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
    spelled = len(bare) > 1 and bare.isupper() and not set(bare) & set("AEIOUY")
    parts: list[ClassSpan] = []
    for run in re.finditer(r"[A-Za-z']+|.", bare):
        text = run[0]
        if text[0].isascii() and text[0].isalpha():
            if spelled:
                parts += [ClassSpan(PhoneClass.ANY, _SPELLED_MS)] * len(text)
            else:
                parts += [ClassSpan(sound, _MS[sound]) for sound in _sounds(text.lower())]
        elif text.isdigit() or text in _READ_OUT:
            parts.append(ClassSpan(PhoneClass.ANY, _SPELLED_MS))
        elif text.isalpha():
            parts.append(ClassSpan(PhoneClass.ANY, _WIDE_MS if text >= "\u3040" else _LETTER_MS))
    return parts


def _sounds(letters: str) -> list[PhoneClass]:
    sounds: list[PhoneClass] = []
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


class CoarseFeatureExtractor:
    """Measures moments of 20 ms and says how unlike each kind of sound they are."""

    def __init__(self) -> None:
        self._rest: Pcm = np.zeros(0, np.float32)
        self._last = np.float32(0)
        self._loudest = _LOUD_RMS

    def hear(self, pcm: Pcm) -> ClassCosts:
        """The next audio, float32 [n] at 24 kHz; the cost of each `PhoneClass` in each whole moment, float64 [m, 6]."""
        pcm = np.concatenate([self._rest, pcm]) if len(self._rest) else pcm
        count = len(pcm) // HOP_SAMPLES
        self._rest = pcm[count * HOP_SAMPLES :].copy()
        whole = pcm[: count * HOP_SAMPLES]
        if not count:
            return np.zeros((0, len(PhoneClass)))
        change = np.diff(whole, prepend=self._last)
        self._last = whole[-1]
        power = _moment_energy(whole)
        loudest = np.maximum.accumulate(np.concatenate([[self._loudest], np.sqrt(power)]))[1:]
        self._loudest = float(loudest[-1])
        level = np.maximum(10 * np.log10(power + _FLOOR) - 20 * np.log10(loudest), _LEVEL[PhoneClass.PAUSE])
        brightness = np.log10((_moment_energy(change) + _FLOOR * _FLOOR_BRIGHTNESS) / (power + _FLOOR))
        costs = _unlike(level, _LEVEL, _LEVEL_SPREAD) + _unlike(brightness, _BRIGHTNESS, _BRIGHTNESS_SPREAD)
        return np.concatenate([costs, np.full((count, 1), _ANY_COST)], axis=1)


def _unlike(measured: Vector, mean: Vector, spread: Vector) -> NDArray[np.float64]:
    """How little each measurement is like each of normal distributions; float64 [measurements, distributions]."""
    cost: NDArray[np.float64] = ((measured[:, None] - mean) / spread) ** 2 / 2
    capped: NDArray[np.float64] = np.minimum(cost, _WORST) + np.log(spread)
    return capped


def _moment_energy(pcm: Pcm) -> NDArray[np.float64]:
    moments = pcm.reshape(-1, HOP_SAMPLES).astype(np.float64)
    energy: NDArray[np.float64] = np.einsum("ij,ij->i", moments, moments) / HOP_SAMPLES
    return energy


STAY_COST = 1.45
"""Of a moment longer than expected, and of one shorter."""
SKIP_COST = 1.1
PAUSE_COST = 0.06
"""Of a moment of pause at a punctuation mark or before the first word."""
UNASKED_PAUSE_COST = 0.5
"""Likewise between words that nothing parts."""
NO_PAUSE_COST = 8.0
"""Of speaking on over a punctuation mark."""
MARGIN_MS = 240
"""Speech that must follow a word before it is given out; what comes may still move what is nearer."""
_FAR = 10**9


class CoarseScorer:
    """The `AcousticScorer` for one utterance of any voice: each step is a moment of one kind of sound."""

    reach_steps = 800
    commit_policy = CommitPolicy(cost_margin=0.0, min_hops=MARGIN_MS // HOP_MS, max_hops=_FAR)

    def __init__(self) -> None:
        self._listener = CoarseFeatureExtractor()

    def hear(self, pcm: Pcm, codes: Codes) -> Features:  # noqa: ARG002 - an ear may listen to either
        return self._listener.hear(pcm)

    def costs(self, heard: Features, sounds: NDArray[Any]) -> Costs:
        costs: Costs = heard[:, sounds]
        return costs

    def word(self, text: str, before: str, pace: float) -> StateSequence:  # noqa: ARG002 - a hiss is one behind anything
        parts = class_spans(text) or [ClassSpan(PhoneClass.ANY, HOP_MS)]
        moments = [max(1, round(part.ms * pace / HOP_MS)) for part in parts]
        sounds = np.repeat([part.sound for part in parts], moments)
        return _steps(sounds, STAY_COST, SKIP_COST)

    def pause(self, *, asked: bool) -> StateSequence:
        stay, skip_cost = (PAUSE_COST, NO_PAUSE_COST) if asked else (UNASKED_PAUSE_COST, 0.0)
        return _steps(np.array([PhoneClass.PAUSE]), stay, skip_cost)


def _steps(sounds: NDArray[Any], stay: float, skip_cost: float) -> StateSequence:
    each = np.ones(len(sounds))
    return StateSequence(sounds, stay * each, 0 * each, skip_cost * each, each)
