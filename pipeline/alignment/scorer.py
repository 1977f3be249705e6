"""What a follower goes by: how a text's words should sound, and how unlike that each moment of speech is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

Vector = NDArray[np.float64]
Costs = NDArray[np.floating[Any]]
"""What it would cost each step to be what is heard in each moment, [m, steps]."""
Features = NDArray[Any]
"""What an ear keeps of a stretch of speech; stretches are joined along the first axis."""
Codes = NDArray[np.int16]
"""The first code of each frame, int16 [frames]."""

HOP_MS = 20


@dataclass(frozen=True, slots=True)
class StateSequence:
    """A stretch of expected speech; a row of each array for each step."""

    sounds: NDArray[Any]
    """What the ear knows it by."""
    stay: Vector
    """Cost of another moment of it."""
    leave: Vector
    """Of going on behind it."""
    skip_cost: Vector
    """Of passing over it."""
    moments: Vector
    """How many it is expected to last."""

    def __len__(self) -> int:
        return len(self.stay)


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When a word's time is certain: every path that costs at most `cost_margin` more than the cheapest agrees on it.

    Never before `min_hops` came after the word, and always after `max_hops`.
    """

    cost_margin: float
    min_hops: int
    max_hops: int


class AcousticScorer(Protocol):
    """Knows how words should sound and how unlike that a moment is."""

    reach_steps: int
    """How far ahead of what is certain the speech may be."""
    commit_policy: CommitPolicy

    def hear(self, pcm: Pcm, codes: Codes) -> Features:
        """The next frames, float32 [n * 1920] at 24 kHz and what they were decoded from."""

    def costs(self, heard: Features, sounds: NDArray[Any]) -> Costs:
        """How unlike each of the sounds every moment is."""

    def word(self, text: str, before: str, pace: float) -> StateSequence:
        """A word, or a part of one, as written, and the one `before` it; at least one step."""

    def pause(self, *, asked: bool) -> StateSequence:
        """The one step between words; `asked` for by a punctuation mark."""
