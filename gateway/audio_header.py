"""The 20 bytes before every audio payload (docs/protocol.md, "Binary messages")."""

from __future__ import annotations

import struct
from dataclasses import dataclass

VERSION = 1
HEADER_BYTES = 20

_LAYOUT = struct.Struct("<BBHIIQ")
_FIRST = 0b01
_LAST = 0b10


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """`number` from `started`, `seq` without gap from 0, `pts` and `samples` at the format's rate."""

    number: int
    seq: int
    pts: int
    samples: int
    first: bool = False
    last: bool = False

    def pack(self) -> bytes:
        """The header's 20 bytes, little endian."""
        flags = (_FIRST if self.first else 0) | (_LAST if self.last else 0)
        return _LAYOUT.pack(VERSION, flags, self.samples, self.number, self.seq, self.pts)


def unpack(message: bytes) -> tuple[AudioHeader, bytes]:
    """Split a binary message into header and payload. Raises ValueError when it is none of this version."""
    if len(message) < HEADER_BYTES:
        raise ValueError(f"an audio message has at least {HEADER_BYTES} bytes, this one has {len(message)}")
    version, flags, samples, number, seq, pts = _LAYOUT.unpack_from(message)
    if version != VERSION:
        raise ValueError(f"audio header version {version} is not {VERSION}")
    header = AudioHeader(number, seq, pts, samples, first=bool(flags & _FIRST), last=bool(flags & _LAST))
    return header, message[HEADER_BYTES:]
