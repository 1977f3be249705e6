from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.codec.in_flight import InFlight
from voxgate.pipeline.codec.stream import CodecStream
from voxgate.pipeline.errors import EngineLost, GenerationFailed


def stream(slot: int) -> CodecStream:
    """With one frame taken for decoding."""
    opened = CodecStream(slot, lambda codes: codes, lambda: None, lambda _: None)
    opened.push(np.zeros((1, 16), np.int16))
    opened.take(1, 0, 0.0)
    return opened


async def test_each_stream_gets_its_row() -> None:
    streams = stream(0), stream(1)
    InFlight(streams, 1, 0).deliver(np.stack([np.full(1920, 0.1, np.float32), np.full(1920, 0.2, np.float32)]))
    assert [(await anext(each))[0] for each in streams] == [np.float32(0.1), np.float32(0.2)]


async def test_what_is_no_number_ends_its_stream_alone() -> None:
    sane, broken = stream(0), stream(1)
    InFlight((sane, broken), 1, 0).deliver(np.stack([np.zeros(1920, np.float32), np.full(1920, np.nan, np.float32)]))
    assert len(await anext(sane)) == 1920
    with pytest.raises(GenerationFailed):
        await anext(broken)


async def test_a_job_that_fails_ends_all_its_streams() -> None:
    streams = stream(0), stream(1)
    InFlight(streams, 1, 0).fail(EngineLost("gone"))
    for each in streams:
        with pytest.raises(EngineLost):
            await anext(each)
