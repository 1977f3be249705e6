from __future__ import annotations

import numpy as np
import pytest
from voxgate.codecs.format import PCM_RATES_HZ
from voxgate.codecs.pcm import Pcm
from voxgate.codecs.resample import Resampler


def stream(pcm: Pcm, rate: int, chunk: int) -> Pcm:
    resampler = Resampler(24_000, rate)
    parts = [resampler.push(pcm[at : at + chunk]) for at in range(0, len(pcm), chunk)]
    return np.concatenate([*parts, resampler.finish()])


@pytest.mark.parametrize("rate", PCM_RATES_HZ)
@pytest.mark.parametrize("samples", [0, 1, 7, 1920, 24_001, 30_003])
def test_length_is_exact(rate: int, samples: int) -> None:
    pcm = np.ones(samples, np.float32)
    assert len(stream(pcm, rate, 1920)) == int(samples * rate / 24_000 + 0.5)


@pytest.mark.parametrize("rate", PCM_RATES_HZ)
def test_chunks_equal_single_pass(rate: int) -> None:
    pcm = np.random.default_rng(1).standard_normal(9_601).astype(np.float32)
    whole = stream(pcm, rate, len(pcm))
    for chunk in (1920, 333):
        np.testing.assert_allclose(stream(pcm, rate, chunk), whole, atol=1e-6)


@pytest.mark.parametrize("rate", PCM_RATES_HZ)
def test_tone_keeps_its_frequency(rate: int) -> None:
    def tone(hz: int) -> Pcm:
        return np.sin(2 * np.pi * 440 * np.arange(hz) / hz).astype(np.float32)

    inner = slice(rate // 10, -rate // 10)
    assert np.abs(stream(tone(24_000), rate, 1920)[inner] - tone(rate)[inner]).max() < 2e-3
