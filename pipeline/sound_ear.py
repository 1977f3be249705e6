"""Hears a voice of which nothing is known: words by the kinds of sound in them (`sounds.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ear import MOMENT_MS, Codes, Costs, Heard, Patience, Steps
from .sounds import Listener, Part, Sound, parts_of
from .speech import Pcm

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


class SoundEar:
    """The `Ear` for one utterance of any voice: each step is a moment of one kind of sound."""

    reach_steps = 800
    patience = Patience(doubt=0.0, least_moments=MARGIN_MS // MOMENT_MS, most_moments=_FAR)

    def __init__(self) -> None:
        self._listener = Listener()

    def hear(self, pcm: Pcm, codes: Codes) -> Heard:  # noqa: ARG002 - an ear may listen to either
        return self._listener.hear(pcm)

    def costs(self, heard: Heard, sounds: NDArray[Any]) -> Costs:
        costs: Costs = heard[:, sounds]
        return costs

    def word(self, text: str, before: str, pace: float) -> Steps:  # noqa: ARG002 - a hiss is one behind anything
        parts = parts_of(text) or [Part(Sound.ANY, MOMENT_MS)]
        moments = [max(1, round(part.ms * pace / MOMENT_MS)) for part in parts]
        sounds = np.repeat([part.sound for part in parts], moments)
        return _steps(sounds, STAY_COST, SKIP_COST)

    def pause(self, *, asked: bool) -> Steps:
        stay, leave_out = (PAUSE_COST, NO_PAUSE_COST) if asked else (UNASKED_PAUSE_COST, 0.0)
        return _steps(np.array([Sound.PAUSE]), stay, leave_out)


def _steps(sounds: NDArray[Any], stay: float, leave_out: float) -> Steps:
    each = np.ones(len(sounds))
    return Steps(sounds, stay * each, 0 * each, leave_out * each, each)
