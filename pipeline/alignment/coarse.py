"""Acoustic model for any voice: coarse phone classes, guessed from spelling and recognised by level and brightness.

The classes are a pause, vowels, sonorants, fricatives and stops. Two measures of each hop distinguish them well enough
to align a known text with its speech: the level, relative to the loudest hop so far, and the brightness, the logarithm
of the energy of the signal's difference over its energy. Each class is a normal distribution of both.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm

from .scorer import HOP_MS, Codes, CommitPolicy, Costs, Features, StateSequence, Vector

HOP_SAMPLES = SAMPLE_RATE_HZ * HOP_MS // 1000


class PhoneClass(IntEnum):
    """What a hop of speech can be."""

    PAUSE = 0
    VOWEL = 1
    SONORANT = 2
    """m, n, l, r, w: as loud as a vowel, and darker."""
    FRICATIVE = 3
    """s, sh, f and the like: bright."""
    STOP = 4
    """p, t, k and the like: a gap with a click at its end."""
    ANY = 5
    """Unknown, such as a digit: fits every hop equally."""


@dataclass(frozen=True, slots=True)
class ClassSpan:
    """A part of a word: its class and its duration at the ordinary pace."""

    phone_class: PhoneClass
    ms: float


_CLASS_MS = {PhoneClass.VOWEL: 105.0, PhoneClass.SONORANT: 90.0, PhoneClass.FRICATIVE: 75.0, PhoneClass.STOP: 40.0}
_LETTER_MS = 75.0
"""Duration of a letter of a script without spelling rules below."""
_WIDE_LETTER_MS = 190.0
"""Duration of a character that stands for a syllable or more, such as a Chinese one."""
_SPELLED_MS = 260.0
"""Duration of a digit, of a symbol that is read out, or of a letter of an abbreviation."""
_SPELLED_SYMBOLS = frozenset("$€£%&+=@")

# Spelling of English, roughly valid for most languages in Latin letters. The first rule that matches applies.
_SPELLING: tuple[tuple[str, tuple[PhoneClass, ...]], ...] = (
    (r"gh(?=t|$)|^k(?=n)|^w(?=r)|(?<=[aeiouy][^aeiouy])e(?=s?$)|(?<=[aeiouy][^aeiouy]{2})e(?=s?$)|'", ()),
    (r"[ts]ion", (PhoneClass.FRICATIVE, PhoneClass.VOWEL, PhoneClass.SONORANT)),
    (r"qu", (PhoneClass.STOP, PhoneClass.SONORANT)),
    (r"x", (PhoneClass.STOP, PhoneClass.FRICATIVE)),
    (r"^y|(?<=[aeiou])y(?=[aeiou])|wh|w", (PhoneClass.SONORANT,)),
    (r"[aeiouy]+", (PhoneClass.VOWEL,)),
    (r"th", (PhoneClass.STOP,)),
    (r"t?ch|sch|sh|ph|ss|s|ff|f|zz|z|h|c(?=[eiy])|j", (PhoneClass.FRICATIVE,)),
    (r"ng|mm|m|nn|n|ll|l|rr|r", (PhoneClass.SONORANT,)),
    (r"ck|(?P<twice>[bdgkpt])(?P=twice)|[a-z]", (PhoneClass.STOP,)),
)
_RULES = tuple((re.compile(pattern), classes) for pattern, classes in _SPELLING)

# Mean and spread of each class from PAUSE to STOP, measured on the demo voice.
_LEVEL_MEAN_DB = np.array([-51.0, -6.5, -7.0, -23.0, -25.0])
_LEVEL_SPREAD_DB = np.array([10.0, 5.0, 6.5, 11.0, 14.0])
_BRIGHTNESS_MEAN = np.array([-1.9, -2.0, -2.3, -0.4, -1.5])
_BRIGHTNESS_SPREAD = np.array([0.8, 0.4, 0.4, 0.9, 1.0])
_INITIAL_LOUDEST_RMS = 0.1
"""Assumed RMS of the loudest hop before louder speech arrived."""
_MAX_DEVIATION_COST = 6.4
"""Largest cost that one measure of one hop can add to a class: bounds the effect of outliers."""
_FLOOR = 1e-8
"""Power (-80 dB) added to each hop to mask quieter noise, with a brightness of its own."""
_FLOOR_BRIGHTNESS = 10**-1.9
_ANY_COST = 2.3


def class_spans(word: str) -> list[ClassSpan]:
    """The phone classes of a word, or of a part of one, as written; punctuation has none."""
    bare = "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))
    is_abbreviation = len(bare) > 1 and bare.isupper() and not set(bare) & set("AEIOUY")
    spans: list[ClassSpan] = []
    for run in re.finditer(r"[A-Za-z']+|.", bare):
        text = run[0]
        if text[0].isascii() and text[0].isalpha():
            if is_abbreviation:
                spans += [ClassSpan(PhoneClass.ANY, _SPELLED_MS)] * len(text)
            else:
                spans += [ClassSpan(kind, _CLASS_MS[kind]) for kind in _classes(text.lower())]
        elif text.isdigit() or text in _SPELLED_SYMBOLS:
            spans.append(ClassSpan(PhoneClass.ANY, _SPELLED_MS))
        elif text.isalpha():
            spans.append(ClassSpan(PhoneClass.ANY, _WIDE_LETTER_MS if text >= "\u3040" else _LETTER_MS))
    return spans


def _classes(letters: str) -> list[PhoneClass]:
    classes: list[PhoneClass] = []
    at = 0
    while at < len(letters):
        for rule, found in _RULES:
            if match := rule.match(letters, at):
                classes += found
                at = match.end()
                break
        else:
            raise AssertionError(f"no spelling rule for {letters[at:]!r}")
    return classes


class CoarseFeatureExtractor:
    """Measures each hop of one stream of audio: what most clients never ask for is left to `class_costs`."""

    def __init__(self) -> None:
        self._rest: Pcm = np.zeros(0, np.float32)
        self._last = np.float32(0)
        self._loudest_power = _INITIAL_LOUDEST_RMS**2

    def push(self, pcm: Pcm) -> Vector:
        """Measures the next audio, float32 [n] at 24 kHz: float64 [hops, 3], one row per complete hop.

        A row has the power of the hop, that of its difference signal, and that of the loudest hop so far.
        """
        pcm = np.concatenate([self._rest, pcm]) if len(self._rest) else pcm
        count = len(pcm) // HOP_SAMPLES
        self._rest = pcm[count * HOP_SAMPLES :].copy()
        measured = np.zeros((count, 3))
        if not count:
            return measured
        whole = pcm[: count * HOP_SAMPLES]
        difference = np.empty_like(whole)
        difference[0] = whole[0] - self._last
        np.subtract(whole[1:], whole[:-1], out=difference[1:])
        self._last = whole[-1]
        power, difference_power, loudest_power = measured.T
        power[:], difference_power[:] = _hop_power(whole), _hop_power(difference)
        np.maximum.accumulate(power, out=loudest_power)
        np.maximum(loudest_power, self._loudest_power, out=loudest_power)
        self._loudest_power = float(loudest_power[-1])
        return measured


def class_costs(measured: Vector) -> Vector:
    """The cost of each phone class in each hop, float64 [hops, 6]; `measured`: of `CoarseFeatureExtractor`."""
    power, difference_power, loudest_power = measured.T
    level_db = 10 * np.log10(power + _FLOOR) - 10 * np.log10(loudest_power)
    level_db = np.maximum(level_db, _LEVEL_MEAN_DB[PhoneClass.PAUSE])
    brightness = np.log10((difference_power + _FLOOR * _FLOOR_BRIGHTNESS) / (power + _FLOOR))
    costs = _deviation_cost(level_db, _LEVEL_MEAN_DB, _LEVEL_SPREAD_DB)
    costs += _deviation_cost(brightness, _BRIGHTNESS_MEAN, _BRIGHTNESS_SPREAD)
    return np.concatenate([costs, np.full((len(measured), 1), _ANY_COST)], axis=1)


def _deviation_cost(measured: Vector, mean: Vector, spread: Vector) -> Vector:
    """Capped negative log density of each measurement in each normal distribution: [measurements, distributions]."""
    cost: Vector = ((measured[:, None] - mean) / spread) ** 2 / 2
    capped: Vector = np.minimum(cost, _MAX_DEVIATION_COST) + np.log(spread)
    return capped


def _hop_power(pcm: Pcm) -> Vector:
    """Mean square of each hop."""
    hops = pcm.reshape(-1, HOP_SAMPLES)
    power: Vector = np.einsum("ij,ij->i", hops, hops).astype(np.float64) / HOP_SAMPLES
    return power


SELF_LOOP_COST = 1.45
"""Cost of each hop by which a class lasts longer than expected."""
SKIP_COST = 1.1
"""Cost of each hop by which a class lasts shorter than expected."""
PAUSE_HOP_COST = 0.06
"""Cost of each hop of a pause at a punctuation mark or before the first word."""
UNPUNCTUATED_PAUSE_HOP_COST = 0.5
"""Cost of each hop of a pause between words without punctuation."""
NO_PAUSE_COST = 8.0
"""Cost of a punctuation mark without a pause."""
COMMIT_MARGIN_MS = 240
"""Speech that must follow a word before its time is final: later audio may still move nearer borders."""
_NEVER = 10**9


class CoarseScorer:
    """The `AcousticScorer` for one utterance of any voice; each state is one expected hop of a class."""

    beam_states = 800
    commit_policy = CommitPolicy(cost_margin=0.0, min_hops=COMMIT_MARGIN_MS // HOP_MS, max_hops=_NEVER)

    def __init__(self) -> None:
        self._extractor = CoarseFeatureExtractor()

    def extract_features(self, pcm: Pcm, codes: Codes) -> Features:  # noqa: ARG002 - this scorer uses the audio alone
        """What `class_costs` needs of each hop, float64 [hops, 3]."""
        return self._extractor.push(pcm)

    def costs(self, features: Features, emissions: NDArray[Any]) -> Costs:
        """The costs of the classes in `emissions`."""
        costs: Costs = class_costs(features)[:, emissions]
        return costs

    def word_states(self, text: str, before: str, pace: float) -> StateSequence:  # noqa: ARG002 - no context needed
        """As many states of each class of the word as hops are expected of it."""
        spans = class_spans(text) or [ClassSpan(PhoneClass.ANY, HOP_MS)]
        hops = [max(1, round(span.ms * pace / HOP_MS)) for span in spans]
        classes = np.repeat([span.phone_class for span in spans], hops)
        return _states(classes, SELF_LOOP_COST, SKIP_COST)

    def pause_states(self, *, punctuated: bool) -> StateSequence:
        """One state of silence."""
        hop_cost, skip_cost = (PAUSE_HOP_COST, NO_PAUSE_COST) if punctuated else (UNPUNCTUATED_PAUSE_HOP_COST, 0.0)
        return _states(np.array([PhoneClass.PAUSE]), hop_cost, skip_cost)


def _states(classes: NDArray[Any], self_loop_cost: float, skip_cost: float) -> StateSequence:
    ones = np.ones(len(classes))
    return StateSequence(classes, self_loop_cost * ones, 0 * ones, skip_cost * ones, ones)
