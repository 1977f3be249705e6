"""The header of a WAV file whose length is not known yet."""

from __future__ import annotations

import struct

_UNKNOWN = 0xFFFFFFFF
"""What players take for "until the stream ends"."""


def stream_header(sample_rate_hz: int) -> bytes:
    """44 bytes ahead of s16le mono samples (RIFF, chunks `fmt ` and `data`)."""
    block_bytes = 2
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        _UNKNOWN,
        b"WAVE",
        b"fmt ",
        16,  # bytes of this chunk
        1,  # PCM
        1,  # channel
        sample_rate_hz,
        sample_rate_hz * block_bytes,
        block_bytes,
        16,  # bits a sample
        b"data",
        _UNKNOWN,
    )
