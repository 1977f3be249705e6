"""Makes the audio of an utterance from its speech: exact pauses, and the rates and volumes that its text asks for.

All of them change between two generations of the talker, where speech begins and ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from ..interface import Prosody
from ..text.markup.writer import Mark, Pause
from .gain import Gain
from .time_stretch import TimeStretch
from .timeline import SAMPLES_PER_MS, Timeline

CHUNK_SAMPLES = 2 * FRAME_SAMPLES
"""Most samples of silence that are given out at once: a longer pause must not be encoded in one turn of the loop."""


@dataclass(frozen=True, slots=True)
class AudioRun:
    """Audio, float32 [n] at 24 kHz: what `frames` frames of speech became, from number `first_frame` on, or silence.

    Frames count without those that were cut off.
    """

    pcm: Pcm
    first_frame: int
    frames: int


class SpeechShaper:
    """The audio of one utterance. Synchronous; the caller bounds what waits, by what it pushes."""

    def __init__(self, prosody: Prosody, on_speech: Callable[[Pcm, int], None]) -> None:
        """`on_speech(pcm, frame)` is called with the speech, behind the marks before it and before its audio."""
        self.timeline = Timeline(prosody.rate)
        self._prosody, self._on_speech = prosody, on_speech
        self._stretch, self._gain = TimeStretch(prosody.rate), Gain(prosody.volume)
        self._marks: deque[tuple[int, Mark]] = deque()
        """Marks that are still to come, and the number of generated frames before each."""
        self._speech: deque[tuple[int, Pcm]] = deque()
        """Speech that is still to come, and the number of generated frames before it."""
        self._end = 0
        """Generated frames so far, those included that were cut off."""
        self._frames = self._told = 0
        """Frames that were shaped, and those that runs have counted."""
        self._silence = 0
        """Samples of the pause under way that are still to be given out."""
        self._finished = False

    @property
    def rate(self) -> float:
        """Rate of the speech that is given out now."""
        return self._prosody.rate

    @property
    def has_marks(self) -> bool:
        """Whether a pause or a change is still to be given out."""
        return bool(self._marks or self._silence)

    def place(self, marks: Iterable[Mark], frame: int) -> None:
        """Places marks behind the first `frame` generated frames."""
        self._marks.extend((frame, mark) for mark in marks)

    def push(self, pcm: Pcm, end: int) -> None:
        """Accepts the next speech, float32 [n * 1920]; `end`: generated frames up to its end."""
        self._end = end
        if len(pcm):
            self._speech.append((end - len(pcm) // FRAME_SAMPLES, pcm))

    def finish(self) -> None:
        """Ends the speech: the marks that are still to come follow it."""
        self._finished = True

    def clear(self) -> None:
        """Drops what was not given out."""
        self._marks.clear()
        self._speech.clear()
        self._stretch, self._silence = TimeStretch(1), 0

    def take(self) -> AudioRun | None:
        """Returns the next audio; None where there is none before more speech, or at the end."""
        while True:
            if self._silence:
                count = min(self._silence, CHUNK_SAMPLES)
                self._silence -= count
                return self._run(np.zeros(count, np.float32))
            if self._mark_is_due:
                pcm = self._rest()
                self._pass(self._marks.popleft()[1])
            elif self._speech:
                pcm = self._shape(*self._next_speech())
            else:
                return self._run(pcm) if self._finished and len(pcm := self._rest()) else None
            if len(pcm):
                return self._run(pcm)

    def _rest(self) -> Pcm:
        """Returns the end of the speech so far, which the stretch has held back."""
        return self._gain.apply(self._stretch.finish())

    @property
    def _mark_is_due(self) -> bool:
        position = self._speech[0][0] if self._speech else self._end
        return bool(self._marks) and (self._marks[0][0] <= position or (self._finished and not self._speech))

    def _next_speech(self) -> tuple[Pcm, int]:
        """Removes the next speech up to a mark; returns it with its generated frame number."""
        frame, pcm = self._speech.popleft()
        if self._marks and (before := self._marks[0][0] - frame) * FRAME_SAMPLES < len(pcm):
            self._speech.appendleft((frame + before, pcm[before * FRAME_SAMPLES :]))
            pcm = pcm[: before * FRAME_SAMPLES]
        return pcm, frame

    def _shape(self, pcm: Pcm, frame: int) -> Pcm:
        self._on_speech(pcm, frame)
        self._frames += len(pcm) // FRAME_SAMPLES
        return self._gain.apply(self._stretch.push(pcm))

    def _pass(self, mark: Mark) -> None:
        if isinstance(mark, Pause):
            self._silence = mark.ms * SAMPLES_PER_MS
        else:
            self._prosody = mark.prosody
            self._gain.change(mark.prosody.volume)
        self._stretch = TimeStretch(self._prosody.rate)
        self.timeline.begin(mark.offset, self._frames * FRAME_SAMPLES, self._silence, self._prosody.rate)

    def _run(self, pcm: Pcm) -> AudioRun:
        first, self._told = self._told, self._frames
        return AudioRun(pcm, first, self._frames - first)
