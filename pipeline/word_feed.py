"""What an utterance's word clock is told: its text, and the audio that is heard, with the codes it was made of."""

from __future__ import annotations

from array import array
from collections import deque

import numpy as np

from .deferred_words import WordClock
from .speech import FRAME_SAMPLES, Pcm


class WordFeed:
    """Remembers of what was made all that the clock needs once it is heard."""

    def __init__(self, clock: WordClock) -> None:
        self._clock = clock
        self._first_codes = array("h")
        """Of every frame made."""
        self._segments: deque[tuple[int, int]] = deque()
        """Of every generation that is over, and not heard to its end: the frames made by then, the text read."""

    def made(self, first_code: int) -> None:
        """Another frame was."""
        self._first_codes.append(first_code)

    def segment_made(self, source_end: int) -> None:
        """A generation is over; it has said the text up to there."""
        self._segments.append((len(self._first_codes), source_end))

    def hear(self, pcm: Pcm, made: int) -> None:
        """Float32 [n * 1920], given out next: of the frames made, number `made` and those after it."""
        end = made + len(pcm) // FRAME_SAMPLES
        codes = np.array(self._first_codes[made:end], np.int16)
        while self._segments and self._segments[0][0] <= end:
            frames, source_end = self._segments.popleft()
            cut = max(0, frames - made)
            self._clock.audio(pcm[: cut * FRAME_SAMPLES], codes[:cut])
            self._clock.segment_end(source_end)
            pcm, codes, made = pcm[cut * FRAME_SAMPLES :], codes[cut:], made + cut
        self._clock.audio(pcm, codes)
