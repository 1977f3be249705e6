"""Signed 16 bit PCM."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def encode_s16le(pcm: NDArray[np.float32]) -> bytes:
    """Turn pcm (float32 [n] in [-1, 1]) into s16le: scaled by 32767, clipped after rounding, NaN is 0."""
    scaled = np.rint(np.nan_to_num(pcm, nan=0.0, posinf=1.0, neginf=-1.0) * np.float32(32767))
    payload: bytes = np.clip(scaled, -32768, 32767).astype("<i2").tobytes()
    return payload


def decode_s16le(payload: bytes) -> NDArray[np.float32]:
    """The inverse: float32 [n]."""
    return np.frombuffer(payload, "<i2").astype(np.float32) / np.float32(32767)
