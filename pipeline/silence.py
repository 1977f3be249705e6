"""Silence that nobody waits for: in front of speech, where it can be cut off, and where it takes the place of its end.

Both are known faults of the model (Qwen3-TTS specification, section H): up to 0.7 s of silence before the first word,
and speech that never ends but falls silent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

QUIET_RMS = 10 ** (-50 / 20)
"""A frame below -50 dBFS is silent: breath and the room of a recording are louder than that, digital silence is not."""


def quiet_frames(pcm: Pcm) -> NDArray[np.bool_]:
    """Which frames of float32 [n * 1920] are silent: bool [n]."""
    frames = pcm.reshape(-1, FRAME_SAMPLES)
    quiet: NDArray[np.bool_] = np.sqrt(np.mean(np.square(frames, dtype=np.float64), axis=1)) < QUIET_RMS
    return quiet


class LeadingSilence:
    """Cuts silent frames off the front of a stream, all but the last, in which the first sound may begin.

    At most `most_frames` are cut, so that what is quiet throughout is still heard.
    """

    def __init__(self, most_frames: int) -> None:
        self.frames = 0
        """Frames cut off so far."""
        self._left = most_frames
        self._held: Pcm | None = None

    def cut(self, pcm: Pcm) -> Pcm:
        """What is left to be heard of the next frames, float32 [n * 1920]; a silent frame may be held back."""
        if self._left <= 0:
            return pcm
        if self._held is not None:
            pcm, self._held = np.concatenate([self._held, pcm]), None
        quiet = quiet_frames(pcm)
        silent = len(quiet) if quiet.all() else int(np.argmin(quiet))
        # The one before the first sound stays; while there is none yet, it is held back.
        cut = min(max(0, silent - 1), self._left)
        self.frames += cut
        self._left -= cut
        pcm = pcm[cut * FRAME_SAMPLES :]
        if silent < len(quiet) or self._left <= 0:
            self._left = 0
            return pcm
        self._held = pcm
        return pcm[:0]

    def rest(self) -> Pcm:
        """The stream has ended: what was held back."""
        held, self._held = self._held, None
        return np.zeros(0, np.float32) if held is None else held


class SilenceRun:
    """Tells when a stream has been silent for `limit_frames` frames on end; 0 is never."""

    def __init__(self, limit_frames: int) -> None:
        self._limit = limit_frames
        self._run = 0

    def hear(self, pcm: Pcm) -> bool:
        """Listen to the next frames, float32 [n * 1920]; returns whether the limit is reached."""
        if not self._limit or not len(pcm):
            return False
        quiet = quiet_frames(pcm)
        self._run = self._run + len(quiet) if quiet.all() else int(np.argmin(quiet[::-1]))
        return self._run >= self._limit
