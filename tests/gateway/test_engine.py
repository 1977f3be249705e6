"""The watch over the voice model."""

from __future__ import annotations

import asyncio

import pytest
from fakes.tone import Script, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.gateway.engine import EngineWatch
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.speech import EngineState


def test_it_is_built_anew_after_a_loss() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(Script(start_s=2.0))
        ready_s: list[float] = []
        watch = EngineWatch(synthesizer, lambda: ready_s.append(asyncio.get_running_loop().time()))
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(1)
        assert watch.reason == "the voice model is loading"
        await asyncio.sleep(2)
        assert watch.reason is None
        synthesizer.lose()
        await asyncio.sleep(1)
        assert watch.reason is not None
        assert "restarted" in watch.reason
        await asyncio.sleep(2)
        assert watch.reason is None
        assert ready_s == [2.0, pytest.approx(5.0, abs=0.3)]
        running.cancel()

    run(scene())


def test_failed_restarts_are_tried_again_with_longer_pauses() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(Script())
        watch = EngineWatch(synthesizer, lambda: None)
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(1)
        synthesizer.script.start_failures = [EngineError("no memory")] * 4
        synthesizer.lose()
        await asyncio.sleep(6)
        assert synthesizer.starts == 1 + 4
        await asyncio.sleep(4)
        assert synthesizer.state is EngineState.READY
        running.cancel()

    run(scene())


def test_a_first_start_that_fails_is_told_to_the_caller() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(Script(start_failures=[EngineError("no such checkpoint")]))
        with pytest.raises(EngineError):
            await EngineWatch(synthesizer, lambda: None).run()

    run(scene())


def test_a_crash_loop_is_slowed_down_and_told() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(Script())
        watch = EngineWatch(synthesizer, lambda: None)
        running = asyncio.create_task(watch.run())
        for _ in range(300):
            await asyncio.sleep(1)
            if watch.state is EngineState.READY:
                synthesizer.lose()
        assert synthesizer.starts < 15, "not one a second"
        await asyncio.sleep(1)
        assert watch.reason is not None
        assert "failures in a row" in watch.reason
        running.cancel()

    run(scene())


def test_a_degraded_engine_speaks_on() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(Script())
        looks = []
        watch = EngineWatch(synthesizer, lambda: None, lambda: looks.append(watch.state))
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(0.1)
        synthesizer._state = EngineState.DEGRADED
        await asyncio.sleep(2)
        assert (watch.reason, synthesizer.starts) == (None, 1)
        assert set(looks) == {EngineState.DEGRADED}
        running.cancel()

    run(scene())
