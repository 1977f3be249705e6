"""The interface between the forced aligner and the acoustic models: HMM states of a text, and features of speech.

A word is modelled as a left-to-right hidden Markov model (Rabiner, "A tutorial on hidden Markov models", 1989): each
state has a self-loop, an exit to the next state and a skip. All costs are negative log probabilities, up to a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

Vector = NDArray[np.float64]
"""float64 [n]."""
Costs = NDArray[np.floating[Any]]
"""Emission cost of each state in each hop, [hops, states]."""
Features = NDArray[Any]
"""What a scorer extracts from a stretch of speech; stretches can be concatenated along the first axis."""
Codes = NDArray[np.int16]
"""The codebook 0 code of each frame, int16 [frames]."""

HOP_MS = 20
"""Time step of the alignment: a quarter of a frame."""


@dataclass(frozen=True, slots=True)
class StateSequence:
    """Consecutive HMM states of expected speech; each array has one row per state."""

    emissions: NDArray[Any]
    """What the scorer needs to compute the emission costs of the state."""
    self_loop_cost: Vector
    """Cost of staying in the state for another hop."""
    exit_cost: Vector
    """Cost of leaving it for the next state."""
    skip_cost: Vector
    """Cost of passing over it."""
    expected_hops: Vector
    """Expected duration."""

    def __len__(self) -> int:
        return len(self.expected_hops)


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When a word's time is final: when all paths within `cost_margin` of the cheapest one agree on it.

    Never before `min_hops` hops followed the word, and always after `max_hops`.
    """

    cost_margin: float
    min_hops: int
    max_hops: int


class AcousticScorer(Protocol):
    """An acoustic model: the states of each word, and the cost of each state in each hop of speech."""

    beam_states: int
    """Number of states after the last committed word that the aligner considers."""
    commit_policy: CommitPolicy

    def extract_features(self, pcm: Pcm, codes: Codes) -> Features:
        """Features of the next frames: float32 [n * 1920] at 24 kHz, and the codes that they were decoded from."""

    def costs(self, features: Features, emissions: NDArray[Any]) -> Costs:
        """Cost of each state, given by its row of `emissions`, in each hop of `features`: [hops, states]."""

    def word_states(self, text: str, before: str, pace: float) -> StateSequence:
        """States of a word, or of a part of one, as written; at least one.

        `before` is the preceding word, `pace` the factor by which durations exceed the usual ones.
        """

    def pause_states(self, *, punctuated: bool) -> StateSequence:
        """The one state between two words; `punctuated` if the text has a mark there that asks for a pause."""
