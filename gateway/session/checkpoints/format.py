"""The parts of a checkpoint as bytes: a head that says of what it is, then codes; each part authenticates those before.

A part is a header (version, kind, expiry), a body and the first 16 bytes of HMAC-SHA256 over the code of the part
before it, the header and the body. Clients see base64 and cannot read it. All integers are little endian. Codes are
packed with as few bits as the largest one takes, so that the size of a part says how much it unpacks to.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from voxgate.pipeline.errors import CheckpointRefused
from voxgate.pipeline.interface import CodeRun, FinishReason

from ...errors import CheckpointElsewhere

VERSION = 1
MAX_PART_CHARACTERS = 4096
"""Longest part that is accepted; the gateway's own are shorter."""
MAX_PART_FRAMES = 64
"""Most frames in a part."""
LIFE_S = 120
"""Seconds after which a checkpoint is refused: what a client needs to reach another replica, and clocks that differ."""
DIGEST_BYTES = 16
KEY_ID_BYTES = 8

_HEAD, _CODES = 1, 2
_HEADER = struct.Struct("<BBI")
_HEAD_BODY = struct.Struct(f"<{DIGEST_BYTES}s{DIGEST_BYTES}s{KEY_ID_BYTES}s8s")
_RUN = struct.Struct("<HIBBBB")
"""Generation, first frame, frames, how it ended, groups, bits of a code."""
_ENDS = (None, FinishReason.END, FinishReason.LENGTH)
_CODE_BITS = 16


@dataclass(frozen=True, slots=True)
class Head:
    """Of what a checkpoint is."""

    model: bytes
    """Digest of the model's identity."""
    request: bytes
    """Digest of the options in force, the seed included."""
    key_id: bytes
    """Names the key that authenticates it, without telling anything about that key."""
    nonce: bytes
    """Random: distinguishes checkpoints of equal requests."""


class Chain:
    """Writes or checks the parts of one checkpoint in order. `key` authenticates them."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._mac = b""
        """Code of the last part."""

    def seal(self, kind_and_body: tuple[int, bytes], expires_s: int) -> str:
        """Returns the next part."""
        kind, body = kind_and_body
        signed = _HEADER.pack(VERSION, kind, expires_s) + body
        self._mac = self._code_of(signed)
        return urlsafe_b64encode(signed + self._mac).decode().rstrip("=")

    def open(self, part: str) -> tuple[int, bytes, int]:
        """Returns kind, body and expiry of the next part. Raises CheckpointRefused; then nothing has changed."""
        if len(part) > MAX_PART_CHARACTERS:
            raise CheckpointRefused(
                f"a part of a checkpoint must have at most {MAX_PART_CHARACTERS} characters, got {len(part)}"
            )
        try:
            content = urlsafe_b64decode(part.encode("ascii") + b"=" * (-len(part) % 4))
        except (UnicodeEncodeError, binascii.Error):
            raise CheckpointRefused("a part of a checkpoint must be base64url") from None
        if len(content) < _HEADER.size + DIGEST_BYTES:
            raise CheckpointRefused(
                f"a part of a checkpoint must have at least {_HEADER.size + DIGEST_BYTES} bytes, got {len(content)}"
            )
        signed, code = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
        version, kind, expires_s = _HEADER.unpack_from(signed)
        if version != VERSION:
            raise CheckpointElsewhere(f"the version of a checkpoint must be {VERSION}, got {version}")
        if not hmac.compare_digest(code, self._code_of(signed)):
            raise CheckpointRefused("a part of a checkpoint must be authentic and follow the one before it")
        self._mac = code
        return kind, signed[_HEADER.size :], expires_s

    def _code_of(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, self._mac + signed, "sha256")[:DIGEST_BYTES]


def pack_head(head: Head) -> tuple[int, bytes]:
    """Returns kind and body of a head."""
    return _HEAD, _HEAD_BODY.pack(head.model, head.request, head.key_id, head.nonce)


def read_key_id(part: str) -> bytes | None:
    """Returns the name of the key in a head that was not checked; None in what is no head."""
    try:
        content = urlsafe_b64decode(part[:MAX_PART_CHARACTERS].encode("ascii") + b"=" * (-len(part) % 4))
        return bytes(_HEAD_BODY.unpack_from(content, _HEADER.size)[2])
    except (UnicodeEncodeError, binascii.Error, struct.error):
        return None


def unpack_head(kind: int, body: bytes) -> Head:
    """Reads a head. Raises CheckpointRefused."""
    if kind != _HEAD or len(body) != _HEAD_BODY.size:
        raise CheckpointRefused("the first part of a checkpoint must be its head")
    return Head(*_HEAD_BODY.unpack(body))


def pack_runs(runs: Sequence[CodeRun]) -> Iterator[tuple[int, bytes]]:
    """Yields kind and body of parts with the codes, at most MAX_PART_FRAMES frames in each."""
    parts: list[bytes] = []
    room = MAX_PART_FRAMES
    for run in runs:
        for piece in _pieces(run, room):
            parts.append(_pack_run(piece))
            room -= len(piece.codes)
            if room <= 0:
                yield _CODES, b"".join(parts)
                parts, room = [], MAX_PART_FRAMES
    if parts:
        yield _CODES, b"".join(parts)


def _pieces(run: CodeRun, room: int) -> Iterator[CodeRun]:
    """Divides a run: at most `room` frames, then at most MAX_PART_FRAMES each; the last has the end."""
    begin = 0
    while True:
        end = min(len(run.codes), begin + room)
        last = end == len(run.codes)
        yield CodeRun(run.generation, run.first + begin, run.codes[begin:end], run.end if last else None)
        if last:
            return
        begin, room = end, MAX_PART_FRAMES


def _pack_run(run: CodeRun) -> bytes:
    frames, groups = run.codes.shape if len(run.codes) else (0, 0)
    bits = max(1, int(run.codes.max()).bit_length()) if frames else 0
    head = _RUN.pack(run.generation, run.first, frames, _ENDS.index(run.end), groups, bits)
    columns = (run.codes.reshape(-1, 1) >> np.arange(bits, dtype=np.int16)) & 1
    return head + np.packbits(columns.astype(np.uint8), bitorder="little").tobytes()


def unpack_runs(kind: int, body: bytes) -> list[CodeRun]:
    """Reads a part with codes. Raises CheckpointRefused."""
    runs: list[CodeRun] = []
    if kind != _CODES:
        raise CheckpointRefused("parts behind the head of a checkpoint must be codes")
    begin = frames_in_all = 0
    while begin < len(body):
        if begin + _RUN.size > len(body):
            raise CheckpointRefused("a run of codes must be complete")
        generation, first, frames, end, groups, bits = _RUN.unpack_from(body, begin)
        begin += _RUN.size
        size = (frames * groups * bits + 7) // 8
        frames_in_all += frames
        if end >= len(_ENDS) or bits >= _CODE_BITS or begin + size > len(body) or frames_in_all > MAX_PART_FRAMES:
            raise CheckpointRefused("a run of codes must be complete and within its limits")
        packed = np.frombuffer(body, np.uint8, size, begin)
        codes = _unpack_codes(packed, frames * groups, bits).reshape(frames, groups)
        runs.append(CodeRun(generation, first, codes, _ENDS[end]))
        begin += size
    return runs


def _unpack_codes(packed: NDArray[np.uint8], count: int, bits: int) -> NDArray[np.int16]:
    """Returns int16 [count]."""
    columns = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
    weights = np.int16(1) << np.arange(bits, dtype=np.int16)
    codes: NDArray[np.int16] = (columns.astype(np.int16) * weights).sum(axis=1, dtype=np.int16)
    return codes


def digest(content: bytes) -> bytes:
    """Returns DIGEST_BYTES of SHA-256."""
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
