"""The codes of an utterance, by generation: kept for a checkpoint, or given by one, so that no frame is drawn twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import CheckpointRefused
from .interface import CodeRun, FinishReason
from .talker.generation import Continuation, Frame


class CodeLog:
    """Gives each generation the codes that are known of it, and keeps the others until they are taken.

    Not thread-safe. It holds at most the frames made since the last `take`.
    """

    def __init__(self, past: Sequence[CodeRun] = (), *, keep: bool = False) -> None:
        """`past`: runs that `check_runs` accepts. `keep`: whether `take` is called."""
        self._known: dict[int, list[Frame]] = {}
        self._ends: dict[int, FinishReason] = {}
        for run in past:
            self._known.setdefault(run.generation, []).extend(run.codes)
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
        frames, end = self._known.pop(self._generation, []), self._ends.get(self._generation)
        self._known_frames = len(frames)
        if not frames and end is None:
            return None
        return Continuation(frames, [], closed=False, frame_cap=frame_cap, replayed=True, finish_reason=end)

    def add(self, codes: Frame) -> None:
        """The present generation made its next frame, int16 [groups]."""
        self._frames += 1
        if self._keep and self._frames > self._known_frames:
            self._new.append(codes)

    def end(self, reason: FinishReason | None) -> None:
        """The present generation ended by itself, or was cut (None)."""
        if reason is not None and self._generation not in self._ends:
            self._close_run(reason)

    def take(self) -> list[CodeRun]:
        """Returns the runs that are neither known from before nor taken yet, in order."""
        self._close_run(None)
        runs, self._runs = self._runs, []
        return runs

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
