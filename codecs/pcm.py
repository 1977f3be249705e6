"""Audio as every package of the project holds it, and its coding as 16-bit and float samples and WAV.

Only numpy is imported here, so any process can use these names.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.float32]
"""Mono audio, float32 [n] in [-1, 1], at SAMPLE_RATE_HZ unless another rate is stated."""

SAMPLE_RATE_HZ = 24_000
"""Sample rate of the neural codec."""

FRAME_SAMPLES = 1920
"""Samples of one talker frame (one row of codes) at SAMPLE_RATE_HZ."""

FRAME_MS = 80
"""Duration of one talker frame: FRAME_SAMPLES at SAMPLE_RATE_HZ."""


def quantize_s16(pcm: Pcm) -> NDArray[np.int16]:
    """Converts samples to int16 [n]: scaled by 32767, rounded, clipped to the range of int16; NaN becomes 0."""
    # One check is cheaper than cleaning, and nearly all audio is finite: then so is the sum of its squares.
    if not math.isfinite(pcm @ pcm):
        pcm = np.nan_to_num(pcm, nan=0.0, posinf=1.0, neginf=-1.0)
    scaled = np.rint(pcm * np.float32(32767))
    np.minimum(scaled, 32767, out=scaled)
    np.maximum(scaled, -32768, out=scaled)
    quantized: NDArray[np.int16] = scaled.astype(np.int16)
    return quantized


def encode_s16le(pcm: Pcm) -> bytes:
    """Encodes samples as 2n bytes of little-endian signed 16-bit PCM."""
    payload: bytes = quantize_s16(pcm).astype("<i2", copy=False).tobytes()
    return payload


def encode_f32le(pcm: Pcm) -> bytes:
    """Encodes samples as 4n bytes of little-endian 32-bit floats, clipped to [-1, 1]; NaN becomes 0."""
    payload: bytes = np.clip(np.nan_to_num(pcm, nan=0.0), -1.0, 1.0).astype("<f4", copy=False).tobytes()
    return payload


def decode_s16le(payload: bytes) -> Pcm:
    """Decodes little-endian signed 16-bit PCM to float32 [n]; the inverse of `encode_s16le`."""
    return np.frombuffer(payload, "<i2").astype(np.float32) / np.float32(32767)


_UNKNOWN_LENGTH = 0xFFFFFFFF
"""Chunk length that players take for "until the end of the stream"."""


PCM_FORMAT, FLOAT_FORMAT, ALAW_FORMAT, MULAW_FORMAT = 1, 3, 6, 7
"""Format tags of WAV (mmreg.h)."""
_SAMPLE_BYTES = {PCM_FORMAT: 2, FLOAT_FORMAT: 4, ALAW_FORMAT: 1, MULAW_FORMAT: 1}


def stream_header(sample_rate_hz: int, format_tag: int = PCM_FORMAT) -> bytes:
    """Builds the header of a WAV stream whose length is not known yet: mono, s16le, f32le or G.711.

    The standard module `wave` cannot write it: it computes the RIFF length as 36 + length, which overflows here.
    """
    block_bytes = _SAMPLE_BYTES[format_tag]
    layout = struct.pack(
        "<HHIIHH",
        format_tag,
        1,  # channel
        sample_rate_hz,
        sample_rate_hz * block_bytes,
        block_bytes,
        8 * block_bytes,
    )
    chunks = b"fmt " + _sized(layout)
    if format_tag != PCM_FORMAT:
        # Other formats than PCM state the size of their extension, which is empty, and the number of samples.
        chunks = b"fmt " + _sized(layout + bytes(2)) + b"fact" + _sized(struct.pack("<I", _UNKNOWN_LENGTH))
    unknown = struct.pack("<I", _UNKNOWN_LENGTH)
    return b"RIFF" + unknown + b"WAVE" + chunks + b"data" + unknown


def _sized(chunk: bytes) -> bytes:
    return struct.pack("<I", len(chunk)) + chunk
