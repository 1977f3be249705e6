"""How a generation handles records of its frames."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from fakes.virtual_time import run, settle
from voxgate.pipeline.errors import EngineLost, GenerationFailed
from voxgate.pipeline.interface import FinishReason
from voxgate.pipeline.ipc.records import RecordFlag
from voxgate.pipeline.talker.generation import DRAIN_TIMEOUT_S

from .scripted_engine import END, began, collect, frame


def test_frames_are_iterated_in_order_then_finish_reason_is_set() -> None:
    async def play() -> None:
        engine, generation = began()
        for number in range(3):
            generation.on_record(number, 0, frame(number))
        generation.on_record(3, END, frame(0))
        engine.outcome.set_result(4)
        codes = [codes async for codes in generation]
        assert [c.tolist() for c in codes] == [frame(n).tolist() for n in range(3)]
        assert {c.dtype for c in codes} == {np.dtype(np.int16)}
        assert generation.finish_reason is FinishReason.END

    run(play())


def test_capped_speech_finishes_with_length() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(0, END | RecordFlag.CAPPED, frame(0))
        engine.outcome.set_result(1)
        assert await collect(generation) == []
        assert generation.finish_reason is FinishReason.LENGTH

    run(play())


def test_each_frame_is_available_when_it_arrives() -> None:
    async def play() -> None:
        _engine, generation = began()
        for number in range(3):
            taking = asyncio.create_task(anext(generation))
            await settle()
            assert not taking.done()
            generation.on_record(number, 0, frame(number))
            assert (await taking).tolist() == frame(number).tolist()
            assert generation.finish_reason is None

    run(play())


@pytest.mark.parametrize("number", [0, 2, 7])
def test_frame_out_of_order_fails_generation(number: int) -> None:
    async def play() -> None:
        _engine, generation = began()
        generation.on_record(0, 0, frame(0))
        generation.on_record(number, 0, frame(9))
        assert (await anext(generation)).tolist() == frame(0).tolist()
        with pytest.raises(GenerationFailed, match=f"frame {number} arrived where 1 was due"):
            await anext(generation)

    run(play())


def test_engine_loss_raises_after_frames_that_arrived() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(0, 0, frame(0))
        engine.outcome.set_exception(EngineLost("gone"))
        await settle()
        assert (await anext(generation)).tolist() == frame(0).tolist()
        for _ in range(2):
            with pytest.raises(EngineLost, match="gone"):
                await anext(generation)

    run(play())


def test_engine_loss_ends_wait_for_frames() -> None:
    async def play() -> None:
        engine, generation = began()
        waiting = asyncio.create_task(anext(generation))
        await settle()
        engine.outcome.set_exception(EngineLost("gone"))
        with pytest.raises(EngineLost):
            await waiting

    run(play())


def test_engine_loss_after_end_of_speech_is_ignored() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(0, 0, frame(0))
        generation.on_record(1, END, frame(0))
        engine.outcome.set_exception(EngineLost("gone"))
        await settle()
        assert await collect(generation) == [frame(0).tolist()]
        assert generation.finish_reason is FinishReason.END

    run(play())


def test_frames_arriving_after_request_end_are_awaited() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(0, 0, frame(0))
        engine.outcome.set_result(3)
        collecting = asyncio.create_task(collect(generation))
        await asyncio.sleep(0.9 * DRAIN_TIMEOUT_S)
        assert not collecting.done()
        generation.on_record(1, 0, frame(1))
        generation.on_record(2, END, frame(0))
        assert await collecting == [frame(0).tolist(), frame(1).tolist()]

    run(play())


def test_missing_last_frames_fail_after_timeout() -> None:
    async def play() -> None:
        engine, generation = began()
        engine.outcome.set_result(3)
        with pytest.raises(GenerationFailed, match="last frames did not arrive"):
            await anext(generation)
        assert asyncio.get_running_loop().time() == pytest.approx(DRAIN_TIMEOUT_S)

    run(play())


def test_request_end_without_end_of_speech_fails() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(0, 0, frame(0))
        engine.outcome.set_result(1)
        assert (await anext(generation)).tolist() == frame(0).tolist()
        with pytest.raises(GenerationFailed, match="gave up"):
            await anext(generation)

    run(play())


def test_cancelling_wait_loses_no_frame() -> None:
    async def play() -> None:
        _engine, generation = began()
        waiting = asyncio.create_task(anext(generation))
        await settle()
        generation.on_record(0, 0, frame(0))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert (await anext(generation)).tolist() == frame(0).tolist()

    run(play())
