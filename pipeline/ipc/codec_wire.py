"""Messages between the codec service and its worker process, over a stream socket; little endian.

job     serial u32, rows u16, frames u16, place u16; rows x (slot u16, reset u16); codes int16 [rows, frames, books]
answer  kind u8, serial u32, micros u32, length u32; payload: JSON when READY, a reason in UTF-8 when FAILED;
        micros is how long the job took, and those that were decoded with it

Before its first job a process shows the memory that its sound goes to (`sound_memory.py`). When a job is answered with
PCM, float32 [rows, frames * 1920] lie in its place there, NaN where a row alone could not be decoded.

A job without rows asks for a sign of life. TOOK is told to the service's own process of a batch that others had jobs
in: how many frames it had (in place of serial) and how long they took.
"""
# TODO-DOC What the codec service tells its worker process at its start.

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int16]
"""int16 [frames, books] of one stream, or [rows, frames, books] of a batch."""

JOB_HEADER = struct.Struct("<IHHH")
ANSWER_HEADER = struct.Struct("<BIII")
ROW_BYTES = 4


class AnswerKind(IntEnum):
    READY = 0
    PCM = 1
    FAILED = 2
    TOOK = 3


@dataclass(frozen=True, slots=True)
class Job:
    """The next frames of several streams; `resets` tells which slots begin a new stream with them.

    `place`: of the asker's `SharedPcmBuffers`, for what comes of it.
    """

    serial: int
    slots: tuple[int, ...]
    resets: tuple[bool, ...]
    codes: Codes
    place: int = 0

    def pack(self) -> bytes:
        rows, frames, _ = self.codes.shape
        owners = np.array((self.slots, self.resets), dtype="<u2").T
        codes = np.ascontiguousarray(self.codes, dtype="<i2")
        return JOB_HEADER.pack(self.serial, rows, frames, self.place) + owners.tobytes() + codes.tobytes()

    @classmethod
    def joined(cls, jobs: Sequence[Job]) -> Job:
        """Several jobs of as many frames each as one, with the first one's number."""
        slots = tuple(slot for job in jobs for slot in job.slots)
        resets = tuple(reset for job in jobs for reset in job.resets)
        return cls(jobs[0].serial, slots, resets, np.concatenate([job.codes for job in jobs]))

    @classmethod
    def body_bytes(cls, header: bytes, books: int) -> int:
        """How many bytes follow this header."""
        _, rows, frames, _ = JOB_HEADER.unpack(header)
        return int(rows * ROW_BYTES + rows * frames * books * 2)

    @classmethod
    def unpack(cls, header: bytes, body: bytes, books: int) -> Job:
        serial, rows, frames, place = JOB_HEADER.unpack(header)
        owners = np.frombuffer(body, dtype="<u2", count=2 * rows).reshape(rows, 2)
        codes = np.frombuffer(body, dtype="<i2", offset=rows * ROW_BYTES).reshape(rows, frames, books)
        return cls(serial, tuple(owners[:, 0].tolist()), tuple(map(bool, owners[:, 1])), codes, place)


@dataclass(frozen=True, slots=True)
class CodecDescription:
    """What the worker says of its codec once it is ready (the payload of READY)."""

    codebook_size: int
    books: int
    frame_samples: int


@dataclass(frozen=True, slots=True)
class CodecWorkerOptions:
    """`socket_fd`: the inherited end of the socket pair; `max_rows`, `max_frames`: the largest job of one process;
    `batch_frames`: the most frames of a batch, in which jobs of several are decoded together.

    `address`: instead of the pair, the abstract socket that a worker inside another process connects to. `shared`:
    other processes have jobs too; when it is ready it listens for them.
    """

    checkpoint_dir: str
    slots: int
    mode: Literal["stateful", "overlap"]
    left_context: int
    threads: int
    max_rows: int
    max_frames: int
    batch_frames: int
    socket_fd: int
    parent_pid: int
    device: str = "cpu"
    address: str = ""
    shared: bool = False

    @property
    def jobs_address(self) -> str:
        """Where it listens when it is shared."""
        return f"{self.address}-jobs"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CodecWorkerOptions:
        return cls(**json.loads(text))
