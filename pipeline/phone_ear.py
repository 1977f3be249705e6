"""Hears a voice whose first codes are known (`phone_table.py`): words by their phones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ear import Codes, Costs, Heard, Patience, Steps
from .phone_table import PhoneTable
from .speech import Pcm
from .text.english import MAGNITUDES, MONEY, spoken_english

WEIGHT = 0.5
"""Of what a moment tells: it is much like its neighbours, which tell the same again."""
SLIP = 1e-4
"""How often a moment says nothing about the phone that is spoken."""
LEAVE_OUT_COST = 4.0
"""Of a phone that was not said, at most."""
LEAST_SILENT = 1e-9
NO_PAUSE_COST = 6.0
"""Of speaking on over a punctuation mark."""
LEAST_MOMENTS = 1.2


class PhoneEar:
    """The `Ear` for voices with a table, in English as `text/spoken.py` speaks it. Serves any number of utterances."""

    reach_steps = 250
    patience = Patience(doubt=20.0, least_moments=3, most_moments=100)

    def __init__(self, table: PhoneTable) -> None:
        self._table = table

    def hear(self, pcm: Pcm, codes: Codes) -> Heard:  # noqa: ARG002 - an ear may listen to either
        return codes

    def costs(self, heard: Heard, sounds: NDArray[Any]) -> Costs:
        likelier = self._table.likelier[heard].reshape(-1, len(self._table.usual))
        costs: Costs = -WEIGHT * np.log((1 - SLIP) * (likelier @ sounds.T) + SLIP)
        return costs

    def word(self, text: str, before: str, pace: float) -> Steps:
        heard = self._table.pronunciation.of(spoken(text, before))
        phones, silent = heard.phones, heard.silent
        if not len(phones):
            phones, silent = self._table.usual[None], np.zeros(1, np.float32)
        moments = np.maximum(phones @ self._table.moments * pace, LEAST_MOMENTS).astype(np.float64)
        return Steps(
            phones,
            stay=-np.log(1 - 1 / moments),
            leave=np.log(moments),
            leave_out=np.minimum(-np.log(np.maximum(silent, LEAST_SILENT)), LEAVE_OUT_COST).astype(np.float64),
            moments=moments,
        )

    def pause(self, *, asked: bool) -> Steps:
        silence = np.zeros((1, len(self._table.usual)), np.float32)
        silence[0, 0] = 1
        nothing = np.zeros(1)
        return Steps(silence, nothing, nothing, np.full(1, NO_PAUSE_COST if asked else 0.0), nothing)


def spoken(word: str, before: str) -> str:
    """A written word in letters: "8 kg" is "eight", "kilograms", and "$3 million" is "three", "million dollars"."""
    words = spoken_english(word, after_number=before[-1:].isdigit())
    if MONEY.fullmatch(before) and word.strip(".,;:!?").lower() in MAGNITUDES:
        return f"{words} {spoken_english(before).split()[-1]}"
    return words
