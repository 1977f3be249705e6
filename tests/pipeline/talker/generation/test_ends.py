"""How it ends, and when its slot is free."""

from __future__ import annotations

import asyncio

import pytest
from fakes.virtual_time import run, settle
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.talker.generation import DRAIN_TIMEOUT_S

from .scripted_engine import END, PROMPT, SAMPLING, ScriptedEngine, began, frame


def test_closing_what_never_began_frees_the_slot_at_once() -> None:
    async def play() -> None:
        engine = ScriptedEngine()
        engine.generation.prepare(PROMPT, SAMPLING, 5)
        await engine.generation.aclose()
        assert engine.freed == [engine.generation]
        assert engine.calls == []

    run(play())


def test_closing_after_the_end_frees_the_slot_when_the_request_is_over() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(0, END, frame(0))
        closing = asyncio.create_task(generation.aclose())
        await settle()
        assert engine.freed == []
        engine.outcome.set_result(1)
        await closing
        assert engine.freed == [generation]
        assert "request release" not in engine.calls

    run(play())


def test_an_aborted_generation_keeps_its_slot_until_the_engine_confirms() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await settle()
        assert engine.outcome.cancelled()
        assert engine.calls[-1] == "request release"
        assert engine.freed == []
        assert not closing.done()
        generation.on_released()
        await closing
        assert engine.freed == [generation]

    run(play())


def test_the_release_is_asked_for_only_after_the_abort() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await asyncio.sleep(0)
        assert "request release" not in engine.calls
        await settle()
        assert engine.calls[-1] == "request release"
        generation.on_released()
        await closing

    run(play())


def test_a_release_that_does_not_come_is_not_waited_for_forever() -> None:
    async def play() -> None:
        engine, generation = began()
        await generation.aclose()
        assert asyncio.get_running_loop().time() == pytest.approx(DRAIN_TIMEOUT_S)
        # Only the engine's word frees the slot, late as it may be.
        assert engine.freed == []
        generation.on_released()
        assert engine.freed == [generation]

    run(play())


def test_closing_twice_frees_once() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await settle()
        await generation.aclose()
        generation.on_released()
        await closing
        await generation.aclose()
        assert engine.freed == [generation]
        assert engine.calls.count("request release") == 1

    run(play())


def test_closing_after_the_engine_was_lost_waits_for_nothing() -> None:
    async def play() -> None:
        engine, generation = began()
        engine.outcome.set_exception(EngineLost("gone"))
        await settle()
        await generation.aclose()
        assert asyncio.get_running_loop().time() < 0.001
        assert engine.freed == [generation]

    run(play())


def test_closing_a_generation_that_failed_alone_asks_for_its_release() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.on_record(5, 0, frame(5))
        closing = asyncio.create_task(generation.aclose())
        await settle()
        assert engine.calls[-1] == "request release"
        generation.on_released()
        await closing
        assert engine.freed == [generation]

    run(play())


def test_cancelling_the_close_only_stops_the_waiting() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await settle()
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert engine.freed == []
        generation.on_released()
        assert engine.freed == [generation]

    run(play())
