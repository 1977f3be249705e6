"""When the client is told that the talker waits for its text, and how long the audio that is made will last."""

from __future__ import annotations

import math

from ..outbox import Outbox
from ..pacer import Pacer

ORDINARY_GAP_S = 0.2
"""Seconds without text that are no shortage: a language model pauses for less between two tokens."""
MIN_INTERVAL_S = 1.0
"""Least seconds between two notices of one utterance, whose client sends text in a trickle."""


class TextShortage:
    """Decides when `starving` is sent for one utterance, once in each wait for text. Synchronous; time is an argument.

    `below_ms`: audio left to play at which the client is told; None for never.
    """

    def __init__(self, pacer: Pacer, outbox: Outbox, rate_hz: int, below_ms: int | None) -> None:
        self._pacer, self._outbox, self._rate_hz = pacer, outbox, rate_hz
        self._below_samples = None if below_ms is None else below_ms * rate_hz // 1000
        self._text_s = -math.inf
        """When the last text came."""
        self._told_s = -math.inf
        self._told = False
        """Whether the client was told of the present wait."""

    def on_text(self, now_s: float) -> None:
        """Text came, or a flush: the next wait is another one."""
        self._text_s, self._told = now_s, False

    def audio_ms(self, now_s: float) -> int:
        """Returns the milliseconds of audio that are made and not played yet, by the playback clock."""
        return (self._made_samples - self._pacer.position_samples(now_s)) * 1000 // self._rate_hz

    def due_s(self) -> float:
        """When to tell the client, provided that the talker waits for text until then; infinity for never."""
        if self._below_samples is None or self._told:
            return math.inf
        due_s = max(self._text_s + ORDINARY_GAP_S, self._told_s + MIN_INTERVAL_S)
        return max(due_s, self._pacer.reach_s(self._made_samples - self._below_samples))

    def tell(self, now_s: float) -> None:
        """The client is told."""
        self._told_s, self._told = now_s, True

    @property
    def _made_samples(self) -> int:
        return self._pacer.sent_samples + self._outbox.waiting_samples
