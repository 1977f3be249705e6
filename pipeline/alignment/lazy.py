"""Words in time for utterances that nobody asked word times of: followed only when an interrupt wants to know.

Following the words takes three quarters of what the gateway does for a frame. What it needs is small, though: the
text, and what the voice's ear makes of each frame. So those are kept, and followed when asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from ..interface import WordTime
from .scorer import Codes, Features
from .word_timing import NO_CODES, WordAligner

_STRIDE_FRAMES = 4
"""Listened to, and followed, in one go: fewer and longer strides cost less, and words are settled after each."""


class LazyWordAligner:
    """As `WordAligner`, but gives no words out and does its work in `spoken_until`."""

    def __init__(self, clock: WordAligner) -> None:
        self._clock = clock
        self._source = ""
        self._unheard: list[tuple[Pcm, Codes]] = []
        self._unheard_frames = 0
        self._later: list[Callable[[], object]] = []

    @property
    def pace(self) -> float:
        return self._clock.pace

    def text(self, source: str, committed_chars: int) -> None:
        # The text only grows, and the words of an earlier piece of it are those of the whole.
        self._source = source
        self._put(lambda: self._clock.text(self._source, committed_chars))

    def audio(self, pcm: Pcm, codes: Codes = NO_CODES) -> None:
        """As `WordAligner.audio`; at most 200 bytes are kept of each frame but the last few."""
        self._unheard.append((pcm, codes))
        self._unheard_frames += len(pcm) // FRAME_SAMPLES
        if self._unheard_frames >= _STRIDE_FRAMES:
            self._listen()

    def segment_end(self, source_end: int | None = None) -> None:
        end = len(self._source) if source_end is None else source_end
        self._put(lambda: self._clock.segment_end(end))

    def finish(self) -> None:
        self._put(self._clock.finish)

    def take_words(self) -> list[WordTime]:
        """None: nobody wants them."""
        return []

    def spoken_until(self, played_ms: int) -> int:
        self._put(self._clock.take_words)
        later, self._later = self._later, []
        for follow in later:
            follow()
        return self._clock.spoken_until(played_ms)

    def _listen(self) -> None:
        unheard, self._unheard = self._unheard, []
        self._unheard_frames = 0
        if unheard:
            pcm, codes = (np.concatenate(parts) for parts in zip(*unheard, strict=True))
            self._later.append(partial(self._follow, self._clock.ear.hear(pcm, codes)))

    def _put(self, follow: Callable[[], object]) -> None:
        self._listen()
        self._later.append(follow)

    def _follow(self, stride: Features) -> None:
        self._clock.hear(stride)
        self._clock.take_words()
