from __future__ import annotations

import sys

import numpy as np
import pytest
from voxgate.codecs import opus
from voxgate.codecs.format import OPUS_RATES_HZ
from voxgate.codecs.opus import OpusDecoder, OpusEncoder, OpusUnavailable


def test_look_ahead_is_6_5_ms_at_the_stream_rate() -> None:
    assert [OpusEncoder(rate, 32_000, rate // 50).pre_skip_samples for rate in OPUS_RATES_HZ] == [
        52,
        78,
        104,
        156,
        312,
    ]


def test_encode_returns_one_packet_of_the_given_samples() -> None:
    packet = OpusEncoder(24_000, 32_000, 1920).encode(np.zeros(1920, np.float32))
    assert len(OpusDecoder(24_000).decode(packet)) == 1920


def test_wrong_number_of_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="1920"):
        OpusEncoder(24_000, 32_000, 1920).encode(np.zeros(960, np.float32))


def test_nan_does_not_reach_the_encoder() -> None:
    pcm = np.full(1920, np.nan, np.float32)
    decoded = OpusDecoder(24_000).decode(OpusEncoder(24_000, 32_000, 1920).encode(pcm))
    assert np.abs(decoded).max() < 1e-3


def test_error_without_libopus_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    opus._library.cache_clear()
    monkeypatch.setitem(sys.modules, "opuslib", None)
    try:
        with pytest.raises(OpusUnavailable, match="libopus0"):
            OpusEncoder(24_000, 32_000, 1920)
    finally:
        opus._library.cache_clear()
