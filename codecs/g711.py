"""The telephone's companding, mu-law and A-law (ITU-T G.711): one byte a sample, by table."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from .pcm import Pcm, quantize_s16

_MU_BIAS = 132
"""Added to a magnitude of 16 bits, it makes every mu-law segment begin at a power of two."""
_MU_LARGEST = 0x7FFF


def encode_mulaw(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to n bytes."""
    return _lookup(_mulaw_codes(), pcm)


def encode_alaw(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to n bytes."""
    return _lookup(_alaw_codes(), pcm)


def decode_mulaw(payload: bytes) -> Pcm:
    """The inverse: float32 [n]."""
    code = ~np.frombuffer(payload, np.uint8).astype(np.int32)
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = ((2 * mantissa + 33) << (exponent + 2)) - _MU_BIAS
    return _scaled(np.where(code & 0x80, -magnitude, magnitude))


def decode_alaw(payload: bytes) -> Pcm:
    """The inverse: float32 [n]."""
    code = np.frombuffer(payload, np.uint8).astype(np.int32) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 15
    # The lowest two segments have one step; from the second on the leading one is left out of the mantissa.
    implied = np.where(exponent > 0, 33, 1)
    magnitude = (2 * mantissa + implied) << (np.maximum(exponent, 1) + 2)
    return _scaled(np.where(code & 0x80, magnitude, -magnitude))


@cache
def _mulaw_codes() -> NDArray[np.uint8]:
    """The code of every 16 bit sample, indexed by its bits; uint8 [65536]."""
    negative, magnitude = _sign_and_magnitude()
    biased = np.minimum(magnitude + _MU_BIAS, _MU_LARGEST)
    exponent = _log2(biased) - 7
    mantissa = (biased >> (exponent + 3)) & 15
    codes: NDArray[np.uint8] = (~(negative << 7 | exponent << 4 | mantissa) & 0xFF).astype(np.uint8)
    return codes


@cache
def _alaw_codes() -> NDArray[np.uint8]:
    """The code of every 16 bit sample, indexed by its bits; uint8 [65536]."""
    negative, magnitude = _sign_and_magnitude()
    exponent = np.maximum(_log2(np.maximum(magnitude, 1)) - 7, 0)
    mantissa = (magnitude >> (np.maximum(exponent, 1) + 3)) & 15
    codes: NDArray[np.uint8] = (((1 - negative) << 7 | exponent << 4 | mantissa) ^ 0x55).astype(np.uint8)
    return codes


def _sign_and_magnitude() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Of all 16 bit samples in the order of their bits; negative ones are complemented, as G.711 has it."""
    sample = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32)
    return (sample < 0).astype(np.int32), np.where(sample < 0, ~sample, sample)


def _log2(value: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rounded down; exact."""
    return np.frexp(value)[1].astype(np.int32) - 1


def _lookup(codes: NDArray[np.uint8], pcm: Pcm) -> bytes:
    payload: bytes = codes[quantize_s16(pcm).view(np.uint16)].tobytes()
    return payload


def _scaled(sample: NDArray[np.int32]) -> Pcm:
    return sample.astype(np.float32) / np.float32(32767)
