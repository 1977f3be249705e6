"""Messages between the processes that decode speech and the codec's worker, over a stream socket; little endian.

job     serial u32, kind u8, urgent u8, rows u16, frames u16, buffer u16; rows x (slot u16, fresh u16);
        int16 codes [rows, frames, books]; 16 bytes of key for KEEP and RESTORE
answer  kind u8, serial u32, micros u32, length u32; payload: JSON for READY, a reason in UTF-8 for FAILED;
        micros is the duration of the job's batch

Before its first job a process sends its shared PCM buffers (`pcm_buffers.py`). When a job is answered with PCM, its
buffer holds float32 [rows, frames * 1920]; a row that could not be decoded alone is NaN.

A job without rows asks for a sign of life. KEEP copies the state of the stream in its one slot under the key, a digest
of all codes decoded in the stream; RESTORE lets a stream begin in the slot with the state under the key, and is
answered with RESTORED or MISSING. TOOK reports a batch with jobs of other processes to the service's own
process: `serial` holds its number of frames, `micros` its duration.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.neural.config import CodecMode

Codes = NDArray[np.int16]
"""int16 [frames, codebooks] of one stream, or [rows, frames, codebooks] of a batch."""

JOB_HEADER = struct.Struct("<IBBHHH")
ANSWER_HEADER = struct.Struct("<BIII")
ROW_BYTES = 4
KEY_BYTES = 16


class JobKind(IntEnum):
    """What a job asks for."""

    DECODE = 0
    KEEP = 1
    RESTORE = 2


class AnswerKind(IntEnum):
    """What an answer of the worker reports."""

    READY = 0
    PCM = 1
    FAILED = 2
    TOOK = 3
    RESTORED = 4
    MISSING = 5


@dataclass(frozen=True, slots=True)
class Job:
    """The next frames of several streams; `resets` marks the slots in which a new stream begins with them.

    `buffer`: index of the sender's `SharedPcmBuffers` that receives the audio. A job that is not to DECODE has one
    slot, no frames and a `key` of KEY_BYTES. `urgent`: it does not wait for utterances that begin.
    """

    serial: int
    slots: tuple[int, ...]
    resets: tuple[bool, ...]
    codes: Codes
    buffer: int = 0
    kind: JobKind = JobKind.DECODE
    key: bytes = b""
    urgent: bool = False

    @classmethod
    def on_state(cls, kind: JobKind, serial: int, slot: int, key: bytes, codebooks: int) -> Job:
        """Makes a job to KEEP or RESTORE the state of a slot."""
        return cls(serial, (slot,), (False,), np.zeros((1, 0, codebooks), np.int16), kind=kind, key=key, urgent=True)

    def pack(self) -> bytes:
        """Encodes the job's message."""
        rows, frames, _ = self.codes.shape
        owners = np.array((self.slots, self.resets), dtype="<u2").T
        codes = np.ascontiguousarray(self.codes, dtype="<i2")
        header = JOB_HEADER.pack(self.serial, self.kind, self.urgent, rows, frames, self.buffer)
        return header + owners.tobytes() + codes.tobytes() + self.key

    @classmethod
    def joined(cls, jobs: Sequence[Job]) -> Job:
        """Joins jobs of the same number of frames into one, with the serial of the first."""
        slots = tuple(slot for job in jobs for slot in job.slots)
        resets = tuple(reset for job in jobs for reset in job.resets)
        return cls(jobs[0].serial, slots, resets, np.concatenate([job.codes for job in jobs]))

    @classmethod
    def body_bytes(cls, header: bytes, codebooks: int) -> int:
        """Returns how many bytes follow this header."""
        _, kind, _, rows, frames, _ = JOB_HEADER.unpack(header)
        key = 0 if kind == JobKind.DECODE else KEY_BYTES
        return int(rows * ROW_BYTES + rows * frames * codebooks * 2 + key)

    @classmethod
    def unpack(cls, header: bytes, body: bytes, codebooks: int) -> Job:
        """Decodes a message of `pack`."""
        serial, kind, urgent, rows, frames, buffer = JOB_HEADER.unpack(header)
        owners = np.frombuffer(body, dtype="<u2", count=2 * rows).reshape(rows, 2)
        numbers = rows * frames * codebooks
        codes = np.frombuffer(body, "<i2", numbers, rows * ROW_BYTES).reshape(rows, frames, codebooks)
        key = body[rows * ROW_BYTES + 2 * numbers :]
        slots, resets = tuple(owners[:, 0].tolist()), tuple(map(bool, owners[:, 1]))
        return cls(serial, slots, resets, codes, buffer, JobKind(kind), key, bool(urgent))


@dataclass(frozen=True, slots=True)
class CodecDescription:
    """What the worker reports of its codec when it is ready (the payload of READY)."""

    codebook_size: int
    codebooks: int
    frame_samples: int
    codec_mode: CodecMode = "stateful"
    context_frames: int = 0
    """Frames that a stream repeats to go on with the audio of another."""


@dataclass(frozen=True, slots=True)
class CodecWorkerOptions:
    """What the codec service passes to its worker at the start, as JSON.

    `codec_mode`, `left_context`: as in `codecs/neural/streaming.py`. `max_rows`, `max_frames`: the largest job, and the
    largest batch, which may join jobs of several processes. `socket_fd`: the worker's end of a socket pair; a worker
    inside another process connects to the abstract socket `address` instead. `shared`: once ready, the worker listens
    at `jobs_address` for other processes.
    """

    checkpoint_dir: str
    slots: int
    codec_mode: CodecMode
    left_context: int
    threads: int
    max_rows: int
    max_frames: int
    socket_fd: int
    parent_pid: int
    device: str = "cpu"
    address: str = ""
    shared: bool = False

    @property
    def jobs_address(self) -> str:
        """The abstract socket at which a shared worker listens."""
        return f"{self.address}-jobs"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CodecWorkerOptions:
        return cls(**json.loads(text))
