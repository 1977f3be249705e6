"""A job under way: whose frames it has, and where its sound goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import EngineError, GenerationFailed
from ..speech import Pcm
from .stream import CodecStream


@dataclass(frozen=True, slots=True)
class InFlight:
    """`frames`: of each stream; `place`: of the shared memory that its sound goes to, None for a job of nothing."""

    streams: tuple[CodecStream, ...]
    frames: int
    place: int | None = None

    def deliver(self, sound: Pcm) -> None:
        """`sound`: float32 [streams, samples]. A row that holds what is no number fails its stream alone."""
        sane = np.isfinite(sound).all()
        for stream, row in zip(self.streams, sound, strict=True):
            if sane or np.isfinite(row).all():
                stream.deliver(row, self.frames)
            else:
                # A stream's history holds on to what is no number; other streams have their own.
                stream.fail(GenerationFailed("the codec could not decode the speech"))

    def fail(self, error: EngineError) -> None:
        """End all its streams."""
        for stream in self.streams:
            stream.fail(error)
