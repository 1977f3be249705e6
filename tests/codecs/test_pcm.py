from __future__ import annotations

import numpy as np
from voxgate.codecs.pcm import decode_s16le, encode_s16le


def test_samples_outside_the_range_are_clipped() -> None:
    pcm = np.array([0, 1, -1, 2, -2, np.nan, np.inf, -np.inf, 0.5, 1 / 32767, 0.4 / 32767], np.float32)
    samples = np.frombuffer(encode_s16le(pcm), "<i2")
    assert samples.tolist() == [0, 32767, -32767, 32767, -32768, 0, 32767, -32767, 16384, 1, 0]


def test_little_endian() -> None:
    assert encode_s16le(np.array([258 / 32767], np.float32)) == b"\x02\x01"


def test_round_trip_is_within_half_a_step() -> None:
    pcm = np.linspace(-1, 1, 10_001, dtype=np.float32)
    assert np.abs(decode_s16le(encode_s16le(pcm)) - pcm).max() <= 0.51 / 32767
