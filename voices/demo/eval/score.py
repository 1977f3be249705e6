"""How much of what was to be said was heard: word errors, and words kept, by the cheapest alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .texts import words

_ALIKE = {"mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay", "pm": "p m"}
"""How the recogniser writes what the normaliser spells out."""


@dataclass(frozen=True, slots=True)
class Score:
    """`errors`: words wrong, missing or too many. `kept`: words of the text that were heard, in order."""

    words: int
    errors: int
    kept: int


def score(spoken: str, heard: str) -> Score:
    """Compare a text with what a recogniser heard, word by word (Levenshtein; of equal costs, the most words kept)."""
    expected, got = _folded(spoken), _folded(heard)
    # Cost first, then the kept words with a minus: the smaller pair is the better one.
    row = [(n, 0) for n in range(len(got) + 1)]
    for i, want in enumerate(expected, 1):
        above, row = row, [(i, 0)]
        for j, word in enumerate(got, 1):
            same = want == word
            row.append(
                min(
                    (above[j - 1][0] + (not same), above[j - 1][1] - same),
                    (above[j][0] + 1, above[j][1]),
                    (row[j - 1][0] + 1, row[j - 1][1]),
                )
            )
    errors, kept = row[-1]
    return Score(len(expected), errors, -kept)


def _folded(text: str) -> list[str]:
    return [part for word in words(text) for part in _ALIKE.get(word, word).split()]


def ratio_interval(
    errors: Sequence[float], source_errors: Sequence[float], draws: int = 2000
) -> tuple[float, float, float]:
    """The ratio of two sums over the same texts, and where 95 % of such ratios lie when texts are drawn anew.

    (nan, nan, nan) without an error of the source: there is no ratio then.
    """
    top, bottom = np.asarray(errors, float), np.asarray(source_errors, float)
    if not bottom.sum():
        return (float("nan"),) * 3
    picks = np.random.default_rng(0).integers(len(top), size=(draws, len(top)))
    below = bottom[picks].sum(1)
    ratios = top[picks].sum(1)[below > 0] / below[below > 0]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(top.sum() / bottom.sum()), float(low), float(high)
