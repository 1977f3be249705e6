"""A player that only keeps time: when the audio of one utterance arrived, and where it would have run dry."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

_AUDIBLE_S = 0.001
"""Nobody hears a shorter pause, and clocks are no better."""


@dataclass(slots=True)
class Playback:
    """Fed with every audio message as it arrives; times in seconds of any one clock."""

    sample_rate_hz: int
    arrivals: list[tuple[float, int, int]] = field(default_factory=list)
    """(when it arrived, its first sample, its samples)"""

    def arrive(self, at_s: float, pts: int, samples: int) -> None:
        if samples:
            self.arrivals.append((at_s, pts, samples))

    @property
    def audio_s(self) -> float:
        return sum(samples for _, _, samples in self.arrivals) / self.sample_rate_hz

    @property
    def longest_gap_ms(self) -> float:
        """Longest pause between two messages."""
        times = [at_s for at_s, _, _ in self.arrivals]
        return max((1000 * (later - earlier) for earlier, later in pairwise(times)), default=0.0)

    def underruns(self, buffer_ms: float) -> int:
        """How often a player that starts after `buffer_ms` would have had nothing to play.

        After an underrun it goes on as soon as there is audio, so that one late message counts once.
        """
        if not self.arrivals:
            return 0
        shift_s = self.arrivals[0][0] + buffer_ms / 1000
        count = 0
        for at_s, pts, _ in self.arrivals:
            due_s = shift_s + pts / self.sample_rate_hz
            if at_s - due_s > _AUDIBLE_S:
                count += 1
                shift_s += at_s - due_s
        return count
