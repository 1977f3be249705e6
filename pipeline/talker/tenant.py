"""Who may have a slot of the engine."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..speech import Pcm


class Tenant(Protocol):
    """Who has a slot: a generation of this process, or a `Seat` lent to another."""

    @property
    def epoch(self) -> int:
        """Of the generation that runs in it."""

    @property
    def unread_positions(self) -> int:
        """What the engine may have to read before its next frame."""

    def take(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """A record of the engine's."""

    def hear(self, pcm: Pcm) -> None:
        """The sound of a first frame that the engine decoded."""

    def released(self) -> None:
        """No step touches the slot on the generation's behalf any more."""

    def fail(self, error: Exception) -> None:
        """The engine is lost."""
