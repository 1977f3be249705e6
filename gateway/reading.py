"""Whether a client still reads what it is sent.

TCP does not tell: kernel buffers take a minute of audio from a client that has stopped reading. But a pong comes only
after everything sent before its ping was read, so pings follow the audio, and the last one answered is the proof.
"""

from __future__ import annotations

import math

PROBE_S = 1.0
"""Pings are so far apart while audio leaves; a message costs more than its bytes."""


class Reading:
    """Of one socket. Synchronous; time comes in as an argument."""

    def __init__(self) -> None:
        self._asked_s: float | None = None
        """When the ping left that has no answer yet."""
        self._proven_s = -math.inf
        """When the last ping left that was answered: until then, at least, the client read."""

    def ask(self, now_s: float) -> bool:
        """Audio leaves now: whether a ping is to follow it. Then `answered` is to be called when its pong comes."""
        if self._asked_s is not None or now_s - self._proven_s < PROBE_S:
            return False
        self._asked_s = now_s
        return True

    def answered(self) -> None:
        if self._asked_s is not None:
            self._proven_s, self._asked_s = self._asked_s, None

    def silent_since_s(self) -> float:
        """Since when a ping has had no answer; infinity if all have. It may have stopped reading `PROBE_S` before."""
        return math.inf if self._asked_s is None else self._asked_s
