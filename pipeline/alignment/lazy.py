"""Word alignment on demand, for utterances whose client did not ask for word times.

Alignment takes three quarters of the gateway's work for a frame, but its inputs are small: the text, and the scorer's
features of each frame. So those are recorded, and aligned only when an interrupt needs the position in the text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from ..interface import WordTime
from .scorer import Codes, Features
from .word_timing import NO_CODES, KnownWord, WordAligner

_BATCH_FRAMES = 8
"""Frames processed at a time: fewer, longer batches cost less, and words are committed after each."""


class LazyWordAligner:
    """A `WordTiming` that records its inputs and replays them to a `WordAligner` in `spoken_until`."""

    def __init__(self, aligner: WordAligner) -> None:
        self._aligner = aligner
        self._source = ""
        self._batch: list[tuple[Pcm, Codes]] = []
        self._batch_frames = 0
        self._recorded: deque[Callable[[LazyWordAligner], object]] = deque()
        """What is to be replayed; each is called with this object, because references to it would be a cycle."""

    @property
    def pace(self) -> float:
        """The pace that the aligner was given, updated by what was replayed."""
        return self._aligner.pace

    def push_text(self, source: str, committed_chars: int) -> None:
        """Record the text so far, as `WordAligner.push_text`."""
        # The text only grows, and the words in its first `committed_chars` characters stay the same. So one reference
        # to the latest text replaces a copy per call.
        self._source = source
        self._record(lambda lazy: lazy._aligner.push_text(lazy._source, committed_chars))

    def push_audio(self, pcm: Pcm, codes: Codes = NO_CODES) -> None:
        """Record the features of the next audio; keeps at most 200 bytes per frame, and the latest frames whole."""
        self._batch.append((pcm, codes))
        self._batch_frames += len(pcm) // FRAME_SAMPLES
        if self._batch_frames >= _BATCH_FRAMES:
            self._extract_features()

    def end_segment(self, source_end: int | None = None) -> None:
        """Record the end of a segment, as `WordAligner.end_segment`."""
        end = len(self._source) if source_end is None else source_end
        self._record(lambda lazy: lazy._aligner.end_segment(end))

    def finish(self) -> None:
        """Record the end of the utterance."""
        self._record(lambda lazy: lazy._aligner.finish())

    def take_words(self) -> list[WordTime]:
        """Return no words: the client did not ask for them."""
        return []

    def catch_up(self) -> bool:
        """Align a part of what was recorded, at most `_BATCH_FRAMES` frames; returns whether more is left.

        A minute of speech takes hundreds of milliseconds, which would stop an event loop.
        """
        self._extract_features()
        aligned = False
        while self._recorded and not aligned:
            replay = self._recorded.popleft()
            replay(self)
            aligned = isinstance(replay, partial)  # features; the other inputs cost little
        return bool(self._recorded)

    def spoken_until(self, played_ms: int) -> int:
        """Align what was recorded since the last call; returns `WordAligner.spoken_until`."""
        self._align_all()
        return self._aligner.spoken_until(played_ms)

    def words_so_far(self) -> list[KnownWord]:
        """Align what was recorded since the last call; returns `WordAligner.words_so_far`."""
        self._align_all()
        return self._aligner.words_so_far()

    def _align_all(self) -> None:
        while self.catch_up():
            pass
        self._aligner.take_words()

    def _extract_features(self) -> None:
        batch, self._batch = self._batch, []
        self._batch_frames = 0
        if batch:
            pcm, codes = (np.concatenate(parts) for parts in zip(*batch, strict=True))
            self._recorded.append(partial(_align, self._aligner.scorer.extract_features(pcm, codes)))

    def _record(self, replay: Callable[[LazyWordAligner], object]) -> None:
        self._extract_features()
        self._recorded.append(replay)


def _align(features: Features, lazy: LazyWordAligner) -> None:
    lazy._aligner.push_features(features)
    lazy._aligner.take_words()
