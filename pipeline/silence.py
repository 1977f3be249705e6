"""Detects silence before speech, where it can be cut off, and after it, where generation can end.

Both are known faults of the model (docs/qwen3_tts.md, section 13, items 1 and 2): up to 0.7 s of silence before the
first word, and speech that does not end but becomes silent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

QUIET_RMS = 10 ** (-50 / 20)
"""RMS below which a frame is silent, -50 dBFS: breath and a recording's background noise are louder."""
_QUIET_FRAME = FRAME_SAMPLES * QUIET_RMS**2
"""As QUIET_RMS, for the sum of the squares of a frame's samples."""

_ONSET_WINDOW = FRAME_SAMPLES // 16
"""Samples of the window in which the first sound is looked for, 5 ms."""
_QUIET_WINDOW = _ONSET_WINDOW * QUIET_RMS**2
"""As QUIET_RMS, for the sum of the squares of a window's samples."""
_MARGIN_WINDOWS = 3
"""Windows kept before the first sound: it may begin more softly than QUIET_RMS."""


def quiet_frames(pcm: Pcm) -> NDArray[np.bool_]:
    """Returns which frames of float32 [n * 1920] are silent: bool [n]."""
    frames = pcm.reshape(-1, FRAME_SAMPLES)
    quiet: NDArray[np.bool_] = np.einsum("ij,ij->i", frames, frames) < _QUIET_FRAME
    return quiet


def begins_at_once(pcm: Pcm) -> bool:
    """Returns whether sound begins within 15 ms of the start of a frame, float32 [1920]."""
    windows = pcm[: _MARGIN_WINDOWS * _ONSET_WINDOW].reshape(-1, _ONSET_WINDOW)
    return bool((np.add.reduce(np.square(windows, dtype=np.float64), axis=1) >= _QUIET_WINDOW).any())


class LeadingSilence:
    """Cuts silent frames off the start of a stream, except one where the sound begins right behind it.

    At most `max_frames` are cut, so that a stream that is quiet throughout is still played.
    """

    def __init__(self, max_frames: int) -> None:
        self.frames = 0
        """Frames cut off so far."""
        self._remaining = max_frames
        self._held: Pcm | None = None
        """The last silent frame, until it is known whether sound follows it."""

    @property
    def held(self) -> int:
        """Frames held back now."""
        return 0 if self._held is None else len(self._held) // FRAME_SAMPLES

    def cut(self, pcm: Pcm) -> Pcm:
        """Returns what remains of the next frames, float32 [n * 1920]; a silent frame may be held back."""
        if self._remaining <= 0:
            return pcm
        if self._held is not None:
            pcm, self._held = np.concatenate([self._held, pcm]), None
        quiet = quiet_frames(pcm)
        silent = len(quiet) if quiet.all() else int(quiet.argmin())
        if 0 < silent < len(quiet) and not begins_at_once(pcm[silent * FRAME_SAMPLES :][:FRAME_SAMPLES]):
            cut = min(silent, self._remaining)
        else:
            cut = min(max(0, silent - 1), self._remaining)
        self.frames += cut
        self._remaining -= cut
        pcm = pcm[cut * FRAME_SAMPLES :]
        if silent < len(quiet) or self._remaining <= 0:
            self._remaining = 0
            return pcm
        self._held = pcm
        return pcm[:0]

    def rest(self) -> Pcm:
        """Returns the audio that was held back, at the end of the stream."""
        held, self._held = self._held, None
        return np.zeros(0, np.float32) if held is None else held


class SilenceRun:
    """Detects that a stream has been silent for `limit_frames` consecutive frames; 0 disables it."""

    def __init__(self, limit_frames: int) -> None:
        self._limit = limit_frames
        self._run = 0

    def push(self, pcm: Pcm) -> bool:
        """Accepts the next frames, float32 [n * 1920]; returns whether the limit is reached."""
        if not self._limit or not len(pcm):
            return False
        frames = pcm.reshape(-1, FRAME_SAMPLES)
        # From the end, where one frame says enough of nearly all speech.
        quiet = next((n for n, frame in enumerate(frames[::-1]) if not frame @ frame < _QUIET_FRAME), len(frames))
        self._run = quiet if quiet < len(frames) else self._run + quiet
        return self._run >= self._limit
