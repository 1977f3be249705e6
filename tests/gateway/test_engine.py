"""The watch over the voice model."""
# TODO-DOC Pauses between restarts.

from __future__ import annotations

import asyncio

import pytest
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.gateway.engine import LONGEST_PAUSE_S, STABLE_AFTER_S, EngineSupervisor, RestartBackoff
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.interface import EngineState


def test_it_is_built_anew_after_a_loss() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript(start_s=2.0))
        ready_s: list[float] = []
        watch = EngineSupervisor(synthesizer, lambda: ready_s.append(asyncio.get_running_loop().time()))
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
        synthesizer = ToneSynthesizer(ToneScript())
        watch = EngineSupervisor(synthesizer, lambda: None)
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
        synthesizer = ToneSynthesizer(ToneScript(start_failures=[EngineError("no such checkpoint")]))
        with pytest.raises(EngineError):
            await EngineSupervisor(synthesizer, lambda: None).run()

    run(scene())


def test_a_crash_loop_is_slowed_down_and_told() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript())
        watch = EngineSupervisor(synthesizer, lambda: None)
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
        synthesizer = ToneSynthesizer(ToneScript())
        looks = []
        watch = EngineSupervisor(synthesizer, lambda: None, lambda: looks.append(watch.state))
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(0.1)
        synthesizer._state = EngineState.DEGRADED
        await asyncio.sleep(2)
        assert (watch.reason, synthesizer.starts) == (None, 1)
        assert set(looks) == {EngineState.DEGRADED}
        running.cancel()

    run(scene())


def test_the_first_restart_comes_at_once_and_later_ones_wait() -> None:
    restarts = RestartBackoff()
    restarts.on_ready(0.0)
    assert [restarts.on_lost(10.0 + n) for n in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert [restarts.on_lost(100.0) for _ in range(50)][-1] == LONGEST_PAUSE_S


def test_an_engine_that_comes_up_and_dies_at_once_is_not_started_faster_for_it() -> None:
    restarts, now_s, pauses = RestartBackoff(), 0.0, []
    for _ in range(12):
        restarts.on_ready(now_s)
        now_s += 10.0
        pauses.append(restarts.on_lost(now_s))
        now_s += pauses[-1]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


def test_a_long_life_is_a_new_beginning() -> None:
    restarts = RestartBackoff()
    restarts.on_ready(0.0)
    restarts.on_lost(1.0)
    restarts.on_ready(2.0)
    assert restarts.on_lost(3.0) == 0.5
    restarts.on_ready(4.0)
    assert restarts.on_lost(4.0 + STABLE_AFTER_S) == 0.0
    assert restarts.failures == 1
