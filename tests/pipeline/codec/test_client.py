"""A client of a codec worker: delivery of audio, and detection of a hanging worker."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from fakes.pipeline.silent_codec_worker import CODEBOOKS, SilentCodecWorker
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.codec.client import CodecClient, InFlightJob
from voxgate.pipeline.codec.stream import CodecStream
from voxgate.pipeline.errors import EngineLost, GenerationFailed
from voxgate.pipeline.ipc.watchdog import MAX_LOOK_DELAY_S


def stream(slot: int) -> CodecStream:
    """Returns a stream with one frame taken for decoding."""
    opened = CodecStream(slot, lambda codes: codes, lambda: None, lambda _: None)
    opened.push(np.zeros((1, 16), np.int16))
    opened.take(1, 0, 0.0)
    return opened


async def test_each_stream_gets_its_row() -> None:
    streams = stream(0), stream(1)
    InFlightJob(streams, 1, 0).deliver(np.stack([np.full(1920, 0.1, np.float32), np.full(1920, 0.2, np.float32)]))
    assert [(await anext(each))[0] for each in streams] == [np.float32(0.1), np.float32(0.2)]


async def test_nan_row_fails_its_stream_alone() -> None:
    sane, broken = stream(0), stream(1)
    InFlightJob((sane, broken), 1, 0).deliver(np.stack([np.zeros(1920, np.float32), np.full(1920, np.nan, np.float32)]))
    assert len(await anext(sane)) == 1920
    with pytest.raises(GenerationFailed):
        await anext(broken)


async def test_failed_job_fails_all_its_streams() -> None:
    streams = stream(0), stream(1)
    InFlightJob(streams, 1, 0).fail(EngineLost("gone"))
    for each in streams:
        with pytest.raises(EngineLost):
            await anext(each)


CODES = np.zeros((1, CODEBOOKS), np.int16)
JOB_DEADLINE_S = 0.05


def block_event_loop(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


async def test_answer_read_late_is_not_a_hang() -> None:
    async with SilentCodecWorker().open() as codec:
        client = CodecClient(1, 8, job_deadline_s=JOB_DEADLINE_S)
        await client.connect(codec.address)
        stream = client.open_in(0)
        stream.push(CODES)
        # Runs right after the job is sent, before its answer is read.
        asyncio.get_running_loop().call_soon(block_event_loop, JOB_DEADLINE_S + 2 * MAX_LOOK_DELAY_S)
        async with asyncio.timeout(DEADLINE_S):
            assert len(await anext(stream)) == 1920
        assert client.ready
        await client.close()


@pytest.mark.parametrize("deadline_s", [JOB_DEADLINE_S, 0.0004])  # uvloop runs what is due within 0.5 ms at once
async def test_unanswered_job_is_a_hang(deadline_s: float) -> None:
    lost: list[EngineLost] = []
    async with SilentCodecWorker().open() as codec:
        codec.answers.clear()
        client = CodecClient(1, 8, job_deadline_s=deadline_s, on_death=lost.append)
        await client.connect(codec.address)
        stream = client.open_in(0)
        stream.push(CODES)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(EngineLost, match="hangs"):
                await anext(stream)
        assert len(lost) == 1
        await client.close()


async def test_job_is_urgent_where_a_listener_has_nothing_ahead() -> None:
    async with SilentCodecWorker().open() as codec:
        client = CodecClient(1, 8)
        await client.connect(codec.address)
        stream = client.open_in(0)
        async with asyncio.timeout(DEADLINE_S):
            for heard in (0, 0, 2):
                stream.advance(heard)
                stream.push(CODES)
                await anext(stream)
        assert codec.urgent == [True, False, True]
        await client.close()


async def test_unpaced_stream_is_decoded_without_further_events() -> None:
    async with SilentCodecWorker().open() as codec:
        client = CodecClient(1, 8)
        await client.connect(codec.address)
        stream = client.open_in(0, paced=False)
        heard = 0
        async with asyncio.timeout(DEADLINE_S):
            for frames in (1, 1, 2, 1):
                stream.push(CODES.repeat(frames, 0))
                # In a paced stream the last frame would wait for a fuller chunk.
                heard += len(await anext(stream))
        assert heard == 5 * 1920
        await client.close()
