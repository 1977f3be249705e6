"""The tables a generation's slot is made of, in memory shared by the gateway and the engine process.

The gateway is the only writer of a slot's row while it owns the slot; the engine only reads. Two orders make that safe
without a lock (stores become visible in program order on the machines vLLM runs on, and each is one aligned word):
tokens are written before the length that admits them, and everything else before `closed`.
"""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass


NO_ENTRY = -1
"""Codec side of `SlotTables.prefix`: no embedding of this codebook at this position."""

SPEAKER = -2
"""Codec side of `SlotTables.prefix`, as codebook 0: the embedding is the slot's speaker vector."""


class Field(IntEnum):
    """Columns of `control`."""

    EPOCH = 0
    """Number of the slot's present owner, from 1; 0 while the slot is free."""
    PREFIX_LEN = 1
    """Position where speech begins: the step there makes frame 0, the step `n` positions on makes frame `n`."""
    TEXT_LEN = 2
    CLOSED = 3
    """1 when no more text comes: the talker then reads end-of-text and padding."""
    CREDIT = 4
    """Frames that may be generated; flow control raises it as the listener plays."""
    FRAME_CAP = 5
    """Frames after which speech is ended by force; looked at only when the text is closed."""
    SEED = 6
    TOP_K = 7
    PREDICTOR_TOP_K = 8
    TEXT_LEAD = 9
    """How far the text is ahead of the speech: frame `n` is made where text token `n + TEXT_LEAD` is read.

    Below zero while the prompt's own text outlasts its frames.
    """
    EARLY_END = 10
    """1 when end of speech may be drawn before all text was read, as the reference does."""
    HEARD = 11
    """Frames the listener has heard, or would have in real time; may be below zero before the first."""
    SUCCESSOR = 12
    """Of a row for prompts (`TableShape.prefilled_prompts`): one more than the slot that goes on from it; 0 while none does."""
    CODEC_SLOT = 13
    """One more than the codec's slot that the first frame may be decoded in at once (`gpu_first_sound.py`); or 0."""


class Option(IntEnum):
    """Columns of `options`."""

    TEMPERATURE = 0
    TOP_P = 1
    REPETITION_PENALTY = 2
    PREDICTOR_TEMPERATURE = 3
    PREDICTOR_TOP_P = 4


@dataclass(frozen=True, slots=True)
class TableShape:
    """Capacity: `slots` generations, each with a prompt, a text and frames of at most these lengths.

    `groups`, `hidden`: codes of a frame, and the talker's width. `prefilled_prompts`: rows behind the slots, for prompts that are
    read before anybody speaks (`warm.py`).
    """

    slots: int
    prefix: int
    text: int
    frames: int
    groups: int
    hidden: int
    prefilled_prompts: int = 0

    @property
    def rows(self) -> int:
        return self.slots + self.prefilled_prompts

    @property
    def end_token(self) -> int:
        """vLLM's "token" for end of speech; the tokens below it are rows of the tables."""
        return self.rows

    @property
    def nbytes(self) -> int:
        prefix = 4 * (1 + self.groups) * self.prefix
        return self.rows * (8 * len(Field) + 4 * len(Option) + prefix + 4 * self.text + 4 * self.hidden)


class SlotTables:
    """Views over one shared mapping.

    `control`: int64 [rows, len(Field)]; `options`: float32 [rows, len(Option)]; `prefix`: int32 [rows, prefix,
    1 + groups], a position's text id and its row of every codebook's table (NO_ENTRY for none); `text`: int32
    [rows, text]; `speaker`: float32 [rows, hidden], for positions marked SPEAKER.
    """

    def __init__(self, shape: TableShape, buffer: mmap.mmap) -> None:
        self.shape = shape
        self.buffer = buffer
        offset = 0

        def view(dtype: type[np.generic], *dims: int) -> NDArray[np.generic]:
            nonlocal offset
            count = int(np.prod(dims))
            array = np.frombuffer(buffer, dtype, count, offset).reshape(dims)
            offset += array.nbytes
            return array

        self.control: NDArray[np.int64] = view(np.int64, shape.rows, len(Field))  # type: ignore[assignment]  # view() is generic
        self.options: NDArray[np.float32] = view(np.float32, shape.rows, len(Option))  # type: ignore[assignment]  # same
        self.prefix: NDArray[np.int32] = view(np.int32, shape.rows, shape.prefix, 1 + shape.groups)  # type: ignore[assignment]  # same
        self.text: NDArray[np.int32] = view(np.int32, shape.rows, shape.text)  # type: ignore[assignment]  # same
        self.speaker: NDArray[np.float32] = view(np.float32, shape.rows, shape.hidden)  # type: ignore[assignment]  # same

    @classmethod
    def create(cls, shape: TableShape) -> tuple[SlotTables, str]:
        """New tables and the path by which another process of this machine can `attach` them.

        The memory has no name in any file system, so nothing is left behind however this process ends.
        """
        descriptor = os.memfd_create("voxgate-slots")
        os.ftruncate(descriptor, shape.nbytes)
        tables = cls(shape, mmap.mmap(descriptor, shape.nbytes))
        # Others attach by way of the descriptor, so it stays open for as long as the tables are there.
        weakref.finalize(tables, os.close, descriptor)
        return tables, f"/proc/{os.getpid()}/fd/{descriptor}"

    @classmethod
    def attach(cls, shape: TableShape, path: str) -> SlotTables:
        """The tables another process created. Raises OSError when that process is gone."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            return cls(shape, mmap.mmap(descriptor, shape.nbytes))
        finally:
            os.close(descriptor)
