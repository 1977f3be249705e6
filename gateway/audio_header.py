"""The header of audio packets of the native protocol (docs/protocol.md, "Binary messages")."""

from __future__ import annotations

import struct
from dataclasses import dataclass

AUDIO_HEADER_VERSION = 1
AUDIO_HEADER_BYTES = 20

_AUDIO_HEADER = struct.Struct("<BBHIIQ")
_FIRST_FLAG = 0b01
_LAST_FLAG = 0b10


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """Header of a binary message.

    `number` is that of the `started` message, `seq` counts packets from 0 without a gap, `pts` (of the first sample)
    and `samples` are at the format's rate.
    """

    number: int
    seq: int
    pts: int
    samples: int
    first: bool = False
    last: bool = False

    def pack(self) -> bytes:
        """Returns the 20 bytes of the header, little endian."""
        flags = (_FIRST_FLAG if self.first else 0) | (_LAST_FLAG if self.last else 0)
        return _AUDIO_HEADER.pack(AUDIO_HEADER_VERSION, flags, self.samples, self.number, self.seq, self.pts)

    @classmethod
    def unpack(cls, message: bytes) -> tuple[AudioHeader, bytes]:
        """Splits a binary message into header and payload. Raises ValueError for a short message or another version."""
        if len(message) < AUDIO_HEADER_BYTES:
            raise ValueError(f"an audio message must have at least {AUDIO_HEADER_BYTES} bytes, got {len(message)}")
        version, flags, samples, number, seq, pts = _AUDIO_HEADER.unpack_from(message)
        if version != AUDIO_HEADER_VERSION:
            raise ValueError(f"audio header version must be {AUDIO_HEADER_VERSION}, got {version}")
        header = cls(number, seq, pts, samples, first=bool(flags & _FIRST_FLAG), last=bool(flags & _LAST_FLAG))
        return header, message[AUDIO_HEADER_BYTES:]
