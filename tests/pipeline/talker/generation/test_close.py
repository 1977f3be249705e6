"""How a generation ends, and when its slot is free."""

from __future__ import annotations

import asyncio

import pytest
from fakes.virtual_time import run, settle
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.talker.generation import DRAIN_TIMEOUT_S

from .scripted_engine import END, PROMPT, SAMPLING, ScriptedEngine, began, frame


def test_closing_unstarted_generation_frees_slot_at_once() -> None:
    async def play() -> None:
        engine = ScriptedEngine()
        engine.generation.prepare(PROMPT, SAMPLING, 5)
        await engine.generation.aclose()
        assert engine.freed == [engine.generation]
        assert engine.calls == []

    run(play())


def test_closing_finished_generation_frees_slot_when_request_ends() -> None:
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


def test_aborted_generation_keeps_slot_until_engine_confirms() -> None:
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


def test_release_is_requested_after_abort() -> None:
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


def test_close_returns_after_timeout_without_release() -> None:
    async def play() -> None:
        engine, generation = began()
        await generation.aclose()
        assert asyncio.get_running_loop().time() == pytest.approx(DRAIN_TIMEOUT_S)
        # Only the engine's confirmation frees the slot, however late it arrives.
        assert engine.freed == []
        generation.on_released()
        assert engine.freed == [generation]

    run(play())


def test_closing_twice_frees_slot_once() -> None:
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


def test_closing_after_engine_loss_returns_at_once() -> None:
    async def play() -> None:
        engine, generation = began()
        engine.outcome.set_exception(EngineLost("gone"))
        await settle()
        await generation.aclose()
        assert asyncio.get_running_loop().time() < 0.001
        assert engine.freed == [generation]

    run(play())


def test_closing_failed_generation_requests_release() -> None:
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


def test_cancelling_close_ends_the_wait_only() -> None:
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
