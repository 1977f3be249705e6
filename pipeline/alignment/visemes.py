"""Mouth shapes of speech, from the first codes of its frames.

A phone table tells the phones of the four hops of a frame by its code alone. So the shapes are known with the frame,
before its audio leaves, in any language, and without alignment: no text is needed and nothing is revised.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ

from ..interface import VisemeTime
from ..prosody.timeline import SAMPLES_PER_MS, Timeline
from .phones import PhoneTable
from .scorer import HOP_MS, Codes

HOP_SAMPLES = SAMPLE_RATE_HZ * HOP_MS // 1000

CodeVisemes = NDArray[np.uint8]
"""Number of the likeliest viseme in each hop of a frame with each code: [codes, 4]."""

SILENCE = "sil"
VISEMES = (SILENCE, "PP", "FF", "TH", "DD", "kk", "CH", "SS", "nn", "RR", "aa", "E", "I", "O", "U")
"""Names of Oculus' fifteen visemes; a viseme's number is its index."""

PHONE_VISEMES: Mapping[str, str] = {
    **{"pau": SILENCE, "p": "PP", "b": "PP", "m": "PP", "f": "FF", "v": "FF", "th": "TH", "dh": "TH", "t": "DD"},
    **{"d": "DD", "k": "kk", "g": "kk", "ng": "kk", "hh": "kk", "ch": "CH", "jh": "CH", "sh": "CH", "zh": "CH"},
    **{"s": "SS", "z": "SS", "n": "nn", "l": "nn", "r": "RR", "er": "RR", "aa": "aa", "ae": "aa", "ah": "aa"},
    **{"ay": "aa", "aw": "aa", "eh": "E", "ey": "E", "ax": "E", "ih": "I", "iy": "I", "y": "I", "ao": "O"},
    **{"ow": "O", "oy": "O", "uh": "U", "uw": "U", "w": "U"},
}
"""The mouth shape of each phone; that of a diphthong's first part."""


def code_visemes(table: PhoneTable) -> CodeVisemes | None:
    """Returns the visemes of a table; None where it does not name its phones, or names one without a viseme here."""
    if not table.phones or not PHONE_VISEMES.keys() >= set(table.phones):
        return None
    visemes = np.array([VISEMES.index(PHONE_VISEMES[phone]) for phone in table.phones])
    probabilities = table.likelihood_ratios * table.prior
    shares = np.stack([probabilities[..., visemes == number].sum(axis=-1) for number in range(len(VISEMES))], axis=-1)
    likeliest: CodeVisemes = shares.argmax(axis=-1).astype(np.uint8)
    return likeliest


class VisemeTrack:
    """The mouth shapes of one utterance, each with the time in its audio from which it holds."""

    def __init__(self, visemes: CodeVisemes) -> None:
        self._visemes = visemes
        self._pending: list[Codes] = []
        """Codes pushed since the last `take`: those of one chunk, or of a few where speech is stretched."""
        self._hops = 0
        """Hops of speech that have their times."""
        self._pauses = 0
        """Pauses that have theirs."""
        self._last = ""

    def push(self, codes: Codes) -> None:
        """Accepts the first codes of the next frames of speech, int16 [frames]."""
        self._pending.append(codes)

    def take(self, timeline: Timeline, *, ended: bool = False) -> list[VisemeTime]:
        """Returns the times of what was pushed since the last call, in order; `ended` closes the mouth behind it.

        `timeline`: the utterance's, which has the sections of that speech and the pauses before and behind it.
        """
        found: list[VisemeTime] = []
        for codes in self._pending:
            for number in self._visemes[codes].flat:
                self._add_pauses(timeline, found)
                self._add(VISEMES[number], timeline.audio_samples(self._hops * HOP_SAMPLES), found)
                self._hops += 1
        self._pending.clear()
        self._add_pauses(timeline, found)
        if ended:
            self._add(SILENCE, timeline.audio_samples(self._hops * HOP_SAMPLES), found)
        return found

    def _add_pauses(self, timeline: Timeline, found: list[VisemeTime]) -> None:
        """Adds the pauses that are due before the next hop."""
        for pause in timeline.pauses[self._pauses :]:
            if pause.speech > self._hops * HOP_SAMPLES:
                return
            self._add(SILENCE, pause.audio, found)
            self._pauses += 1

    def _add(self, viseme: str, audio_samples: int, found: list[VisemeTime]) -> None:
        if viseme != self._last:
            self._last = viseme
            found.append(VisemeTime(viseme, audio_samples // SAMPLES_PER_MS))
