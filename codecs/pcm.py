"""Signed 16 bit PCM."""
# TODO-DOC The header of a WAV file whose length is not known yet.

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray


def quantize_s16(pcm: NDArray[np.float32]) -> NDArray[np.int16]:
    """Turn pcm (float32 [n] in [-1, 1]) into int16 [n]: scaled by 32767, clipped after rounding, NaN is 0."""
    # Every packet of every PCM listener comes through here: one look is cheaper than cleaning what is clean.
    if not np.isfinite(pcm).all():
        pcm = np.nan_to_num(pcm, nan=0.0, posinf=1.0, neginf=-1.0)
    scaled = np.rint(pcm * np.float32(32767))
    np.minimum(scaled, 32767, out=scaled)
    np.maximum(scaled, -32768, out=scaled)
    quantized: NDArray[np.int16] = scaled.astype(np.int16)
    return quantized


def encode_s16le(pcm: NDArray[np.float32]) -> bytes:
    """Turn pcm (float32 [n] in [-1, 1]) into little-endian bytes."""
    payload: bytes = quantize_s16(pcm).astype("<i2", copy=False).tobytes()
    return payload


def decode_s16le(payload: bytes) -> NDArray[np.float32]:
    """The inverse: float32 [n]."""
    return np.frombuffer(payload, "<i2").astype(np.float32) / np.float32(32767)


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
