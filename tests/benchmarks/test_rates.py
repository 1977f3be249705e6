"""The table of qualities by rate."""

from __future__ import annotations

import numpy as np
from voxgate.benchmarks.rates import MOS_RATE_HZ, quality_table
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm


def test_table_has_the_quality_of_each_rate() -> None:
    heard: list[int] = []

    def predict(pcm: Pcm) -> float:
        heard.append(len(pcm))
        return 3.0 if len(heard) % 2 else 4.0

    second = np.sin(np.arange(SAMPLE_RATE_HZ) / 30).astype(np.float32)
    lines = quality_table([second, second], (0.5, 1.0), predict).splitlines()
    assert [length // MOS_RATE_HZ for length in heard] == [2, 2, 1, 1]
    assert [line.split("|")[1:4] for line in lines[2:]] == [[" 0.5 ", " 3.50 ", " 3.00 "], [" 1 ", " 3.50 ", " 3.00 "]]
