"""mu-law and A-law companding of telephony (ITU-T G.711): one byte per sample, by the module `audioop`.

`audioop` left the standard library with Python 3.13; the package `audioop-lts` provides it there.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from .pcm import Pcm, decode_s16le, quantize_s16

_SAMPLE_BYTES = 2


def encode_mulaw(pcm: Pcm) -> bytes:
    """Encodes float32 [n] in [-1, 1] as n bytes.

    G.711 complements a negative sample where `audioop` rounds it down, so samples are complemented here first. Samples
    -1 to -4 are coded as positive zero (0xFF), not as negative zero (0x7F), which `audioop` never writes.
    """
    samples = quantize_s16(pcm)
    complemented = np.where(samples < 0, -((~samples) & ~3), samples).astype("<i2")
    payload: bytes = _audioop().lin2ulaw(complemented.tobytes(), _SAMPLE_BYTES)
    return payload


def encode_alaw(pcm: Pcm) -> bytes:
    """Encodes float32 [n] in [-1, 1] as n bytes."""
    payload: bytes = _audioop().lin2alaw(quantize_s16(pcm).astype("<i2", copy=False).tobytes(), _SAMPLE_BYTES)
    return payload


def decode_mulaw(payload: bytes) -> Pcm:
    """Decodes n bytes to float32 [n]."""
    return decode_s16le(_audioop().ulaw2lin(payload, _SAMPLE_BYTES))


def decode_alaw(payload: bytes) -> Pcm:
    """Decodes n bytes to float32 [n]."""
    return decode_s16le(_audioop().alaw2lin(payload, _SAMPLE_BYTES))


@cache
def _audioop() -> Any:
    with warnings.catch_warnings():
        # Python 3.11 and 3.12 warn of the module's removal.
        warnings.simplefilter("ignore", DeprecationWarning)
        import audioop
    return audioop
