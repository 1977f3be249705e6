"""Pauses in the text as exact silence in the audio, between two generations of the talker."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm

from .interface import WordTime
from .text.markup.writer import Pause

SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000
CHUNK_SAMPLES = 2 * FRAME_SAMPLES
"""Most samples of silence that are given out at once: a longer pause must not be encoded in one turn of the loop."""


@dataclass(slots=True)
class _Placed:
    """A pause that is still to be heard: behind that many frames of the talker."""

    frame: int
    pause: Pause
    left: int
    """Samples that were not given out yet."""


class InsertedPauses:
    """The pauses of one utterance's audio: inserts their silence, and converts times between speech and audio.

    *Speech* is what the talker made and was not cut off; *audio* is what the client gets, pauses included. Positions
    are in samples at 24 kHz. Synchronous.
    """

    def __init__(self) -> None:
        self._placed: deque[_Placed] = deque()
        self._begins: list[int] = []
        """Position in the audio at which each pause that was given out begins."""
        self._offsets: list[int] = []
        """Characters of the plain text before it."""
        self._silence: list[int] = [0]
        """Samples of all pauses before it; one item more than there are pauses."""

    def __bool__(self) -> bool:
        """Whether a pause is still to be given out."""
        return bool(self._placed)

    def clear(self) -> None:
        """Drops what was not given out."""
        self._placed.clear()

    def place(self, pauses: Iterable[Pause], frame: int) -> None:
        """Places pauses behind the first `frame` frames of the talker."""
        self._placed.extend(_Placed(frame, pause, pause.ms * SAMPLES_PER_MS) for pause in pauses)

    def take(self, frame: int | None, speech: int) -> Pcm:
        """Returns the next silence behind `frame` frames of the talker (None: behind all); empty when none is due.

        `speech`: samples of speech that were given out.
        """
        if not self._placed or (frame is not None and self._placed[0].frame > frame):
            return np.zeros(0, np.float32)
        placed = self._placed[0]
        if placed.left == placed.pause.ms * SAMPLES_PER_MS:
            self._begins.append(speech + self._silence[-1])
            self._offsets.append(placed.pause.offset)
            self._silence.append(self._silence[-1])
        count = min(placed.left, CHUNK_SAMPLES)
        placed.left -= count
        self._silence[-1] += count
        if not placed.left:
            self._placed.popleft()
        return np.zeros(count, np.float32)

    def split(self, pcm: Pcm, frame: int) -> tuple[Pcm, Pcm]:
        """Divides speech that begins with the talker's frame number `frame` at the next pause."""
        if not self._placed:
            return pcm, pcm[:0]
        samples = max(0, self._placed[0].frame - frame) * FRAME_SAMPLES
        return pcm[:samples], pcm[samples:]

    def speech_samples(self, audio: int) -> int:
        """Returns how much speech lies in the first `audio` samples of the audio."""
        count = bisect_right(self._begins, audio)
        if not count:
            return audio
        begin = self._begins[count - 1]
        silence = self._silence[count] - self._silence[count - 1]
        return begin - self._silence[count - 1] + max(0, audio - begin - silence)

    def delay(self, words: Iterable[WordTime]) -> list[WordTime]:
        """Converts times of words from speech to audio; the words' offsets are those of the plain text."""
        if not self._begins:
            return list(words)
        return [self._delay(word) for word in words]

    def _delay(self, word: WordTime) -> WordTime:
        ms = self._silence[bisect_right(self._offsets, word.start)] // SAMPLES_PER_MS
        return replace(word, start_ms=word.start_ms + ms, end_ms=word.end_ms + ms)
