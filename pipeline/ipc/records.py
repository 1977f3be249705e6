"""What the engine reports: of each step one record per generation that made a frame or ended, and how long it took.

Besides, it answers marks that the gateway sends among its requests to abort: that a slot is free, that it is alive.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

HEADER = 4
"""Columns before the codes: slot, epoch, frame number, flags."""

PADDING_ROW = -1
"""In place of a slot: a record to be left out."""

MAX_PROCESSES = 64
"""Processes that may run generations in one engine, 0 being the one that started it. An epoch says whose it is: its
remainder by this number."""

_EPOCHS = 2**31
"""What fits into a record; a busy gateway is through with them in days."""


def epoch_after(epoch: int, owner: int) -> int:
    """The owner's next epoch after `epoch` (0: none yet); after the last that there is, the first again."""
    if not epoch or epoch + MAX_PROCESSES >= _EPOCHS:
        return owner or MAX_PROCESSES
    return epoch + MAX_PROCESSES


def later_epoch(one: int, other: int) -> int:
    """Which of two epochs of one owner was given out later; 0 is none. They are not half of all epochs apart."""
    if not (one and other):
        return one or other
    return one if (one - other) % _EPOCHS < _EPOCHS // 2 else other


class RecordFlag(IntFlag):
    """How a record is to be read."""

    END = 1
    """Speech ended; the record carries no frame."""
    CAPPED = 2
    """It was ended by force, at the frame cap."""

    RELEASED = 4
    """Not a frame: no step will touch the slot on behalf of this owner any more. Sent without codes."""

    STEP = 8
    """Not a frame: a step of so many rows took so many microseconds. Sent without codes."""

    HEARTBEAT = 16
    """Not a frame: the answer to `HEARTBEAT_MARKER`. Sent without codes."""

    FAILED = 32
    """With END: this generation's numbers came out of order; its speech cannot go on."""

    PREFILL = 64
    """Not a frame: of a row for prompts. The first says that its prompt was read, the next that nobody needs it any
    more. Sent without codes."""

    DECODED = 128
    """The frame is decoded already: its sound comes by itself, before the next frame."""

    PCM = 256
    """Not a frame: the sound of one that was `DECODED` stands in place of codes. Sent alone."""


Records = NDArray[np.int32]
"""int32 [n, HEADER + groups]"""


def unpack_records(message: bytes, groups: int) -> Records:
    """The records of one message; what is not a frame comes alone and has no codes."""
    values = np.frombuffer(message, np.int32)
    return values.reshape(1, HEADER) if len(values) == HEADER else values.reshape(-1, HEADER + groups)


def split_by_process(message: bytes, groups: int) -> dict[int, bytes]:
    """The parts of one message by the process that each is for.

    Frames are for the owner of their generation, as is sound. What is no frame is for process 0; that a slot is free,
    for both.
    """
    if (sound := unpack_pcm(message)) is not None:
        return {sound[1] % MAX_PROCESSES: message}
    records = unpack_records(message, groups)
    owners = records[:, 1] % MAX_PROCESSES
    if records.shape[1] == HEADER:
        released = records[0, 3] == RecordFlag.RELEASED
        return dict.fromkeys({0, int(owners[0])} if released else {0}, message)
    first = int(owners[0])
    if (owners == first).all():
        return {first: message}
    return {int(owner): records[owners == owner].tobytes() for owner in np.unique(owners)}


def pack_release(slot: int, epoch: int) -> bytes:
    """The engine's word that a slot is free of its owner."""
    return np.array([slot, epoch, 0, RecordFlag.RELEASED], np.int32).tobytes()


def pack_step(batch: int, seconds: float) -> bytes:
    """How long a step took that did nothing but make frames."""
    return np.array([batch, min(round(seconds * 1e6), 2**31 - 1), 0, RecordFlag.STEP], np.int32).tobytes()


def pack_prefill(row: int) -> bytes:
    """News of a row for prompts."""
    return np.array([row, 0, 0, RecordFlag.PREFILL], np.int32).tobytes()


def pack_pcm(slot: int, epoch: int, pcm: Pcm) -> bytes:
    """A first frame's sound, float32 [samples]."""
    return np.array([slot, epoch, 0, RecordFlag.PCM], np.int32).tobytes() + pcm.tobytes()


def unpack_pcm(message: bytes) -> tuple[int, int, Pcm] | None:
    """Slot, epoch and sound of a message that is one; None of any other."""
    slot, epoch, _, flags = np.frombuffer(message, np.int32, HEADER).tolist()
    return (slot, epoch, np.frombuffer(message, np.float32, offset=4 * HEADER)) if flags == RecordFlag.PCM else None


HEARTBEAT = np.array([0, 0, 0, RecordFlag.HEARTBEAT], np.int32).tobytes()
"""The engine's word that it goes round."""

HEARTBEAT_MARKER = "pulse"
"""A name that, sent among requests to abort, asks the engine for `HEARTBEAT`."""

_RELEASE_MARKER = "release"


def release_marker(slot: int, epoch: int) -> str:
    """A name that, sent among requests to abort and after them, asks the engine to confirm that a slot is free.

    vLLM does not confirm aborts. Until one took effect a step under way may still read the slot's tables, so a slot
    given away too early could speak its old owner's first frame.
    """
    return f"{_RELEASE_MARKER}:{slot}:{epoch}"


def parse_release_marker(name: str) -> tuple[int, int] | None:
    """Slot and epoch of a release mark; None for the name of an ordinary request."""
    mark, _, owner = name.partition(":")
    if mark != _RELEASE_MARKER:
        return None
    slot, _, epoch = owner.partition(":")
    return int(slot), int(epoch)
