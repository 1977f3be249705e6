"""How long a client may take no audio: first it is warned, then it is cut."""

from __future__ import annotations

import math

from .reading import PROBE_S, Reading
from .utterance import Utterance

SLOW_AFTER_S = 1.0
"""A client that has not read, or played, for so long is warned."""
UNPACED_TIMES = 10
"""Where audio is sent as fast as it is made, a client may take nothing for so many times as long. A kernel whose
buffers are full asks for more only when a good part of them was read; a player takes seconds for that."""


class Patience:
    """Judges by what the network reports: writes that wait, acks that stop, probes that are not answered."""

    def __init__(self, reading: Reading, stall_limit_s: float) -> None:
        self._reading = reading
        self._limit_s = stall_limit_s

    def after_s(self, since_s: float, *, paced: bool = True) -> tuple[float, float]:
        """When a client that takes nothing since `since_s` counts as slow, and when it is cut.

        One that takes audio as fast as it is made has more of it than it plays, and may stop reading for a while.
        """
        return since_s + SLOW_AFTER_S, since_s + self._limit_s * (1 if paced else UNPACED_TIMES)

    def with_s(self, utterance: Utterance) -> tuple[float, float]:
        """The same for the listener of `utterance` as it stands; infinity while it takes its audio.

        A client that takes audio as fast as it is made may stop reading when it has enough: only a write that waits
        tells of it.
        """
        stalled_s = utterance.stalled_since_s()
        silent_s = self._reading.silent_since_s() if utterance.paced and utterance.speech is not None else math.inf
        if stalled_s == silent_s == math.inf:
            return math.inf, math.inf
        slow_s, cut_s = self.after_s(stalled_s)
        unread_limit_s = max(self._limit_s - PROBE_S, SLOW_AFTER_S)
        return min(slow_s, silent_s + SLOW_AFTER_S), min(cut_s, silent_s + unread_limit_s)
