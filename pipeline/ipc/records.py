"""The engine's reports and the markers that it answers.

A report is one message: the records of a step, one for each generation that made a frame or ended in it; or a single
record without codes (a step's duration, a heartbeat, a released slot, news of a prefilled prompt); or the audio of a
first frame. A marker is a name among those of requests to abort, which vLLM passes to the scheduler in order.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

HEADER = 4
"""Columns of a record before the codes: slot, epoch, frame number, flags."""

PADDING_ROW = -1
"""In place of a slot: a record that is not sent."""

MAX_PROCESSES = 64
"""Processes that may run generations in one engine; number 0 started it. An epoch modulo this is its process."""

_EPOCH_LIMIT = 2**31
"""Epochs are int32 in a record; a busy gateway uses all of them within days."""

Records = NDArray[np.int32]
"""int32 [n, HEADER + groups]"""


class RecordFlag(IntEnum):
    """How a record is to be read; flags are combined as integers, since operators of IntFlag take a microsecond."""

    END = 1
    """Speech ended; the record has no frame."""
    CAPPED = 2
    """With END: ended by force, at the frame cap."""
    RELEASED = 4
    """No step will touch the slot for this epoch any more. Without codes."""
    STEP = 8
    """A step's rows (in place of the slot) and its microseconds (in place of the epoch). Without codes."""
    HEARTBEAT = 16
    """The answer to `HEARTBEAT_MARKER`. Without codes."""
    FAILED = 32
    """With END: the model computed numbers that are not finite; speech cannot continue."""
    PREFILL = 64
    """Of a row of the prompt pool: its prompt was computed, or, after that, the row is free again. Without codes."""
    DECODED = 128
    """The engine decodes this frame; its audio arrives as a report of its own, before the next frame."""
    PCM = 256
    """The audio of a DECODED frame follows in place of codes."""


def epoch_after(epoch: int, process: int) -> int:
    """The next epoch of a process after `epoch`, 0 for none; starts over after the last."""
    if not epoch or epoch + MAX_PROCESSES >= _EPOCH_LIMIT:
        return process or MAX_PROCESSES
    return epoch + MAX_PROCESSES


def later_epoch(one: int, other: int) -> int:
    """The later of two epochs of one process, 0 for none; they are less than half of all epochs apart."""
    if not (one and other):
        return one or other
    return one if (one - other) % _EPOCH_LIMIT < _EPOCH_LIMIT // 2 else other


def unpack_records(message: bytes, groups: int) -> Records:
    """The records of a message, int32 [n, HEADER + groups]; int32 [1, HEADER] for a record without codes."""
    values = np.frombuffer(message, np.int32)
    return values.reshape(1, HEADER) if len(values) == HEADER else values.reshape(-1, HEADER + groups)


def split_by_process(message: bytes, groups: int) -> dict[int, bytes]:
    """Splits a message by receiving process.

    Frames and audio are for the process of their epoch. Other records are for process 0; RELEASED is for both.
    """
    if (audio := unpack_pcm(message)) is not None:
        return {audio[1] % MAX_PROCESSES: message}
    records = unpack_records(message, groups)
    processes = records[:, 1] % MAX_PROCESSES
    if records.shape[1] == HEADER:
        released = records[0, 3] == RecordFlag.RELEASED
        return dict.fromkeys({0, int(processes[0])} if released else {0}, message)
    first = int(processes[0])
    if (processes == first).all():
        return {first: message}
    return {int(process): records[processes == process].tobytes() for process in np.unique(processes)}


def pack_release(slot: int, epoch: int) -> bytes:
    """Reports that no step touches the slot for this epoch any more."""
    return np.array([slot, epoch, 0, RecordFlag.RELEASED], np.int32).tobytes()


def pack_step(batch: int, seconds: float) -> bytes:
    """Reports the duration of a step that made nothing but frames."""
    return np.array([batch, min(round(seconds * 1e6), 2**31 - 1), 0, RecordFlag.STEP], np.int32).tobytes()


def pack_prefill(row: int) -> bytes:
    """Reports news of a row of the prompt pool."""
    return np.array([row, 0, 0, RecordFlag.PREFILL], np.int32).tobytes()


def pack_pcm(slot: int, epoch: int, pcm: Pcm) -> bytes:
    """Reports the audio of a first frame, float32 [samples]."""
    return np.array([slot, epoch, 0, RecordFlag.PCM], np.int32).tobytes() + pcm.tobytes()


def unpack_pcm(message: bytes) -> tuple[int, int, Pcm] | None:
    """Slot, epoch and audio of a message of `pack_pcm`; None for any other."""
    slot, epoch, _, flags = np.frombuffer(message, np.int32, HEADER).tolist()
    return (slot, epoch, np.frombuffer(message, np.float32, offset=4 * HEADER)) if flags == RecordFlag.PCM else None


HEARTBEAT = np.array([0, 0, 0, RecordFlag.HEARTBEAT], np.int32).tobytes()
"""Reports that the engine's loop runs."""

HEARTBEAT_MARKER = "heartbeat"
"""Requests `HEARTBEAT` of the scheduler."""

_RELEASE_MARKER = "release"


def release_marker(slot: int, epoch: int) -> str:
    """Requests RELEASED of a slot and epoch from the scheduler, after an abort.

    vLLM does not confirm aborts. Until one has taken effect, a step in flight may still read the slot's tables, so a
    slot reused too early could make the first frame of its previous generation.
    """
    return f"{_RELEASE_MARKER}:{slot}:{epoch}"


def parse_release_marker(name: str) -> tuple[int, int] | None:
    """Slot and epoch of a release marker; None for the name of a request."""
    marker, _, generation = name.partition(":")
    if marker != _RELEASE_MARKER:
        return None
    slot, _, epoch = generation.partition(":")
    return int(slot), int(epoch)
