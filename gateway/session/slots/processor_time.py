"""Whether the event loop has processor time for more speech at the pace of playback.

The engine's capacity does not tell: on a machine with a fast GPU and few cores the loop is full first, and then every
utterance of the process has underruns, however many were admitted.
"""

from __future__ import annotations

import math

MAX_SHARE = 0.85
"""Share of a core from which on no further utterance is admitted: what one costs is measured a second late."""
_SMOOTHING = 0.2
"""Weight of a new sample; there are four a second."""


class ProcessorTime:
    """Synchronous. Unpaced speech uses what time is left, so samples with such speech do not count.

    Processor time is that of the process: on a machine that is busy with other programs the share is lower.
    """

    def __init__(self) -> None:
        self._share = 0.0
        self._too_many = math.inf
        """Paced utterances with which the loop was full when that was last measured."""
        self.full = False
        """Whether a paced utterance is to be refused."""

    def observe(self, share: float, paced: int, unpaced: int) -> None:
        """Takes the share of a core that the loop has used, 0 to 1, and the number of its active utterances."""
        if not unpaced:
            self._share += _SMOOTHING * (share - self._share)
            self._too_many = paced if self._share >= MAX_SHARE else math.inf
        self.full = paced >= self._too_many
