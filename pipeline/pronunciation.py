"""How a word is said, from its letters: a small network that was learnt with a voice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

PHONES_PER_LETTER = 2
"""The "x" of "fox" is two."""


_SILENT = 0.9
"""A place that is surer than this to make no phone is left out."""


@dataclass(frozen=True, slots=True)
class Said:
    """Places where a phone is heard: how likely each phone is there, [places, phones], and that there is none after
    all, [places].
    """

    phones: Array
    silent: Array


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """A network with one hidden layer, over each letter and as many to either side of it.

    `inputs`: [2n + 1, letters + 1, hidden], what each letter adds at each place, the last for beyond the word;
    `outputs`: [hidden, 2 * phones]. The first phone is silence: with it a letter says that it is silent.
    """

    letters: str
    inputs: Array
    hidden_bias: Array
    outputs: Array
    output_bias: Array

    @property
    def phones(self) -> int:
        return len(self.output_bias) // PHONES_PER_LETTER

    def of(self, text: str) -> Said:
        """What the letters of the text make, in order; places that are hardly ever heard are left out."""
        words = re.findall(f"[{re.escape(self.letters)}]+", text.lower())
        likely = np.concatenate([np.zeros((0, self.phones), np.float32), *map(self._word, words)])
        silent = likely[:, 0].copy()
        likely[:, 0] = 0
        heard = silent < _SILENT
        return Said(likely[heard] / likely[heard].sum(axis=1, keepdims=True), silent[heard])

    def _word(self, word: str) -> Array:
        """Of each letter in turn its places: how likely each phone is there, the first standing for none."""
        width = len(self.inputs)
        beyond = [len(self.letters)] * (width // 2)
        letters = np.array([*beyond, *map(self.letters.index, word), *beyond])
        around = np.lib.stride_tricks.sliding_window_view(letters, width)
        hidden = self.inputs[np.arange(width), around].sum(axis=1) + self.hidden_bias
        said = np.maximum(hidden, 0) @ self.outputs + self.output_bias
        return _softmax(said.reshape(-1, self.phones))


def _softmax(scores: NDArray[Any]) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares
