"""The figures of one utterance that its record reports: when it reached its stages, its underruns, its silence."""

from __future__ import annotations

import math
from collections import Counter
from enum import StrEnum

from voxgate.pipeline.interface import Milestones

_UNDERRUN_MIN_S = 0.01
"""Shorter underruns are timer jitter, which a player's buffer absorbs."""
_TEXT_LATENCY_S = 0.3
"""Time from new text to audio. An underrun within this time after the talker waited for text is the client's."""


class Change(StrEnum):
    """What can happen to an utterance beside its text being spoken."""

    RESTORED = "restored"
    """It went on from a checkpoint of another gateway."""
    HELD = "held"
    CONTINUED = "continued"
    """It went on after a hold."""
    RETRACTED = "retracted"
    """Text of it was taken back."""


class UtteranceFigures:
    """Collected while the utterance lives. Synchronous; times are arguments, in seconds of the event loop's clock."""

    def __init__(self) -> None:
        self.started_s = 0.0
        self.queued_s: float | None = None
        """When it first asked for a slot."""
        self.granted_s: float | None = None
        """When it first got a slot."""
        self.text_s: float | None = None
        """When its first text came."""
        self.first_packet_s: float | None = None
        self.milestones: Milestones | None = None
        """Of the speech that made the first audio, if it is not the present one."""
        self.underruns = 0
        self.underrun_s = 0.0
        self.continued = 0
        """Times it went on after the loss of the engine."""
        self.changes: Counter[Change] = Counter()
        self.silence_s = 0.0
        """Time without audio because of such losses."""
        self._seam = False
        """Whether the next packet may be late because of such a loss."""
        self._text_gap_s = -math.inf
        """When the talker last had to wait for text."""

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio: from the first text to the first packet."""
        if self.text_s is None or self.first_packet_s is None:
            return None
        return self.first_packet_s - self.text_s

    def on_enqueue(self, now_s: float) -> None:
        """It asked for a slot."""
        if self.queued_s is None:
            self.queued_s = now_s

    def on_text(self, now_s: float) -> None:
        """Text came."""
        if self.text_s is None:
            self.text_s = now_s

    def on_text_gap(self, now_s: float) -> None:
        """Text came, a flush, or the end, for which the talker had to wait."""
        self._text_gap_s = now_s

    def on_speech_replaced(self, milestones: Milestones) -> None:
        """Another speech replaces the one with these milestones."""
        if self.milestones is None and milestones.first_pcm_s is not None:
            self.milestones = milestones

    def on_loss(self) -> None:
        """The engine was lost."""
        self._seam = True

    def on_continued(self) -> None:
        """It goes on after a loss of the engine."""
        self.continued += 1

    def on_packet(self, samples: int, underrun_s: float, now_s: float, *, lost: bool) -> None:
        """A packet of so many samples leaves, `underrun_s` after the client has played all before it.

        `lost`: whether the utterance still waits for the next engine.
        """
        text_was_late = now_s - underrun_s <= self._text_gap_s + _TEXT_LATENCY_S
        if self._seam and samples:
            self.silence_s += underrun_s
            self._seam = lost
        elif underrun_s > _UNDERRUN_MIN_S and samples and not text_was_late:
            self.underruns += 1
            self.underrun_s += underrun_s
        if self.first_packet_s is None:
            self.first_packet_s = now_s
