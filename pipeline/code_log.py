"""The codes of an utterance, by generation: for a checkpoint, a retraction, or given by either: none is drawn twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import CheckpointRefused
from .interface import CodeRun, FinishReason
from .talker.generation import Continuation, Frame


class CodeLog:
    """Gives each generation the codes that are known of it, and keeps all codes, those not taken yet apart.

    Not thread-safe. A second of speech takes 400 bytes, for as long as the utterance lasts.
    """

    def __init__(self, past: Sequence[CodeRun] = (), *, keep: bool = False) -> None:
        """`past`: runs that `check_runs` accepts. `keep`: whether `take` is called."""
        self._groups = 0
        self._codes: dict[int, bytearray] = {}
        """By generation, those included that are still to be iterated again: int16 [frames, groups]."""
        self._ends: dict[int, FinishReason] = {}
        for run in past:
            self._log(run.generation, run.codes)
            if run.end is not None:
                self._ends[run.generation] = run.end
        self._keep = keep
        self._generation = -1
        self._frames = self._known_frames = 0
        """Of the present generation: so far, and known from before."""
        self._new: list[Frame] = []
        """Frames of the present generation that were not taken yet."""
        self._runs: list[CodeRun] = []
        """Runs of generations before it."""

    def begin(self, frame_cap: int) -> Continuation | None:
        """Begins the next generation; returns what is known of it, to be iterated again. `frame_cap`: its least cap."""
        self._close_run(None)
        self._generation += 1
        self._frames = 0
        frames, end = list(self._frames_of(self._generation)), self._ends.get(self._generation)
        self._known_frames = len(frames)
        if not frames and end is None:
            return None
        return Continuation(frames, [], closed=False, frame_cap=frame_cap, iterated=0, finish_reason=end)

    def add(self, codes: Frame) -> None:
        """The present generation made its next frame, int16 [groups]."""
        self._frames += 1
        if self._frames > self._known_frames:
            self._log(self._generation, codes[None])
            if self._keep:
                self._new.append(codes)

    def end(self, reason: FinishReason | None) -> None:
        """The present generation ended by itself, or was cut (None)."""
        if reason is not None and self._generation not in self._ends:
            self._ends[self._generation] = reason
            self._close_run(reason)

    def take(self) -> list[CodeRun]:
        """Returns the runs that are neither known from before nor taken yet, in order."""
        self._close_run(None)
        runs, self._runs = self._runs, []
        return runs

    def runs(self, frames: int | None = None) -> tuple[CodeRun, ...]:
        """Returns all codes known of the utterance, or those of its first `frames` frames, one run a generation.

        A generation that has more frames ends there.
        """
        runs = []
        for generation in sorted(self._codes.keys() | self._ends.keys()):
            codes, end = self._frames_of(generation), self._ends.get(generation)
            if frames is not None:
                if frames <= 0:
                    break
                if frames < len(codes) or (frames == len(codes) and end is None):
                    codes, end = codes[:frames], FinishReason.END
                frames -= len(codes)
            runs.append(CodeRun(generation, 0, codes, end))
        return tuple(runs)

    def _frames_of(self, generation: int) -> NDArray[np.int16]:
        return np.frombuffer(bytes(self._codes.get(generation, b"")), np.int16).reshape(-1, max(1, self._groups))

    def _log(self, generation: int, codes: NDArray[np.int16]) -> None:
        if len(codes):
            self._groups = codes.shape[1]
            self._codes.setdefault(generation, bytearray()).extend(codes.tobytes())

    def _close_run(self, end: FinishReason | None) -> None:
        if self._keep and (self._new or end is not None):
            codes = np.array(self._new, np.int16) if self._new else np.zeros((0, 0), np.int16)
            self._runs.append(CodeRun(self._generation, self._frames - len(self._new), codes, end))
            self._new = []


def check_runs(runs: Sequence[CodeRun], *, groups: int, codebook: int, max_frames: int) -> None:
    """Raises CheckpointRefused for runs that are not consecutive, or that a model of these sizes cannot have made.

    `groups` codes a frame, each below `codebook`; `max_frames`: most frames of a generation. A code outside of the
    embedding table would end the engine, and every utterance with it.
    """
    generation = frames = 0
    ended = False
    for run in runs:
        if run.generation == generation + 1 and ended:
            generation, frames, ended = run.generation, 0, False
        if run.generation != generation or run.first != frames or ended:
            raise CheckpointRefused(
                f"codes must continue frame {frames} of generation {generation}, "
                f"got frame {run.first} of generation {run.generation}"
            )
        frames += len(run.codes)
        ended = run.end is not None
        if frames > max_frames:
            raise CheckpointRefused(f"a generation must have at most {max_frames} frames, got {frames}")
        if not len(run.codes):
            continue
        if run.codes.shape[1] != groups:
            raise CheckpointRefused(f"a frame must have {groups} codes, got {run.codes.shape[1]}")
        if (least := int(run.codes.min())) < 0 or (most := int(run.codes.max())) >= codebook:
            raise CheckpointRefused(f"codes must be from 0 to {codebook - 1}, got {least if least < 0 else most}")
