"""The tables that describe what runs in each slot, in memory shared by the gateway's processes and the engine's.

The process that owns a slot is the only writer of its rows; the engine only reads them. Two orders make that safe
without a lock: tokens are written before the length that admits them, and everything else before `CLOSED`. Each store
is one aligned word, and x86-64 makes stores visible in program order; other architectures do not guarantee it, so the
tables are refused there. A GPU reads a row of `control` over the bus in one line of 128 bytes, never half of it older.
"""

from __future__ import annotations

import mmap
import os
import platform
import weakref
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from .records import MAX_PROCESSES

NO_ENTRY = -1
"""Codec side of `SlotTables.prefix`: no embedding of this codebook at this position."""

SPEAKER = -2
"""Codec side of `SlotTables.prefix`, as codebook 0: the embedding is the slot's speaker vector."""


class Field(IntEnum):
    """Columns of `SlotTables.control`."""

    EPOCH = 0
    """Number of the generation that owns the slot, from 1; 0 while the slot is free."""
    PREFIX_LEN = 1
    """Position at which speech begins: the step there makes frame 0, the step `n` positions later frame `n`."""
    TEXT_LEN = 2
    """Text tokens written so far."""
    CLOSED = 3
    """1 when no more text comes: the talker then reads end-of-text and padding."""
    CREDIT = 4
    """Frames that may be generated; flow control raises it as playback advances."""
    FRAME_CAP = 5
    """Frames after which speech is ended by force; in effect only once the text is closed."""
    SEED = 6
    TOP_K = 7
    PREDICTOR_TOP_K = 8
    TEXT_LEAD = 9
    """Frame `n` is made at the position that reads text token `n + TEXT_LEAD`; negative while the text of the prompt
    outlasts its frames."""
    EARLY_END = 10
    """1 when end of speech may be sampled before all text was read, as in the reference implementation."""
    HEARD = 11
    """Frames that the listener has heard; may be negative before the first."""
    SUCCESSOR = 12
    """Of a row of the prompt pool: one more than the slot that continues from it; 0 while none does."""
    CODEC_SLOT = 13
    """One more than the codec slot that the engine may decode the first frame in (`cuda/first_frame.py`); 0: none.
    Negative where the stream continues from the state in the slot; it begins there otherwise."""
    PAST_FRAMES = 14
    """Frames that were made in another slot, which the generation continues; their codes follow the prompt in
    `SlotTables.prefix`. The first frame made here has this number."""
    PACED = 15
    """1 when the audio is played as it is made, so that a frame far ahead of playback may wait for a step."""


class Option(IntEnum):
    """Columns of `SlotTables.options`."""

    TEMPERATURE = 0
    TOP_P = 1
    REPETITION_PENALTY = 2
    PREDICTOR_TEMPERATURE = 3
    PREDICTOR_TOP_P = 4


CONTROL_COLUMNS, OPTION_COLUMNS = 16, 8
"""Columns of a row: one per `Field`; `Option` names the first ones.

A row of `control` is one aligned line of 128 bytes, which a GPU reads over the bus at once.
"""
ORDERED_MACHINES = ("x86_64", "amd64")
"""Architectures, as `platform.machine` names them, on which other processors see stores in program order."""
_COMPLETED_NUMBERS = 16
"""A line of 128 bytes, so that the table behind it begins one."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """Capacity of the tables.

    `slots` generations, each with a prompt of `prefix` positions, `text` tokens and `frames` frames at most. `groups`:
    codes of a frame; `hidden`: the talker's width. `prefilled_prompts`: rows behind the slots, for prompts that are
    computed ahead (`talker/prompt_pool.py`).
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
        """Rows of every table."""
        return self.slots + self.prefilled_prompts

    @property
    def end_token(self) -> int:
        """vLLM's token id for end of speech; the ids below it are rows of the tables."""
        return self.rows

    @property
    def max_positions(self) -> int:
        """The longest generation, prompt included."""
        return self.prefix + self.frames + 1

    @property
    def prefix_rows(self) -> int:
        """Positions of a row of `SlotTables.prefix`: the prompt and frames made in another slot."""
        return self.prefix + self.frames

    @property
    def nbytes(self) -> int:
        """Size of the shared memory."""
        prefix = 4 * (1 + self.groups) * self.prefix_rows
        row = 8 * CONTROL_COLUMNS + 4 * OPTION_COLUMNS + prefix + 4 * self.text + 4 * self.hidden
        return self.rows * row + 8 * (MAX_PROCESSES + _COMPLETED_NUMBERS)


class SlotTables:
    """Views of one shared mapping, each with a row per slot, except the last two.

    `control`: int64 [rows, CONTROL_COLUMNS]. `options`: float32 [rows, OPTION_COLUMNS]. `prefix`: int32 [rows,
    prefix + frames, 1 + groups], a position's text token and its row in every codebook's embedding (NO_ENTRY for
    none): the prompt, and behind it the codes of `Field.PAST_FRAMES` frames. `text`: int32 [rows, text]. `speaker`:
    float32 [rows, hidden], for positions marked SPEAKER. `expected_s`: float64 [MAX_PROCESSES], when each process
    last expected that an utterance begins, in seconds of the monotonic clock. `completed`: float64 [16], the number of
    the latest step that the engine's device completed, and when, by the same clock; the others stay zero. All are
    zero where nothing notes it.
    """

    def __init__(self, shape: TableShape, buffer: mmap.mmap) -> None:
        self.shape = shape
        self.buffer = buffer
        offset = 0

        def view(dtype: type[np.generic], *dims: int) -> NDArray[np.generic]:
            nonlocal offset
            array = np.frombuffer(buffer, dtype, int(np.prod(dims)), offset).reshape(dims)
            offset += array.nbytes
            return array

        self.control: NDArray[np.int64] = view(np.int64, shape.rows, CONTROL_COLUMNS)  # type: ignore[assignment]  # view() is generic
        self.expected_s: NDArray[np.float64] = view(np.float64, MAX_PROCESSES)  # type: ignore[assignment]  # view() is generic
        self.completed: NDArray[np.float64] = view(np.float64, _COMPLETED_NUMBERS)  # type: ignore[assignment]  # view() is generic
        self.options: NDArray[np.float32] = view(np.float32, shape.rows, OPTION_COLUMNS)  # type: ignore[assignment]  # view() is generic
        self.prefix: NDArray[np.int32] = view(np.int32, shape.rows, shape.prefix_rows, 1 + shape.groups)  # type: ignore[assignment]  # view() is generic
        self.text: NDArray[np.int32] = view(np.int32, shape.rows, shape.text)  # type: ignore[assignment]  # view() is generic
        self.speaker: NDArray[np.float32] = view(np.float32, shape.rows, shape.hidden)  # type: ignore[assignment]  # view() is generic

    @classmethod
    def create(cls, shape: TableShape) -> tuple[SlotTables, str]:
        """Creates zeroed tables; returns them and the path by which other processes of this machine `attach` them.

        The memory has no name in any file system, so it is freed however this process ends. Raises EngineError on an
        architecture that may reorder stores.
        """
        check_store_order(platform.machine())
        descriptor = os.memfd_create("voxgate-slots")
        os.ftruncate(descriptor, shape.nbytes)
        tables = cls(shape, mmap.mmap(descriptor, shape.nbytes))
        # Other processes open the descriptor through /proc, so it stays open as long as the tables exist.
        weakref.finalize(tables, os.close, descriptor)
        return tables, f"/proc/{os.getpid()}/fd/{descriptor}"

    @classmethod
    def attach(cls, shape: TableShape, path: str) -> SlotTables:
        """Maps the tables of another process. Raises OSError when that process is gone."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            return cls(shape, mmap.mmap(descriptor, shape.nbytes))
        finally:
            os.close(descriptor)

    def beginning(self, slot: int, positions: int) -> tuple[bytes, bytes]:
        """What the first positions of a prompt depend on besides the text to be spoken: their rows of `prefix`, bytes,
        and the speaker vector if one of them is marked SPEAKER."""
        prefix = self.prefix[slot, :positions]
        return prefix.tobytes(), self.speaker[slot].tobytes() if (prefix[:, 1] == SPEAKER).any() else b""


def check_store_order(machine: str) -> None:
    """Raises EngineError unless other processors see the stores of `machine` in program order."""
    if machine.lower() not in ORDERED_MACHINES:
        raise EngineError(f"the talker's shared tables need the store order of x86-64, this machine is {machine}")
