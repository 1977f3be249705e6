"""The engine supervisor: readiness, restarts after losses, and the pauses between them."""

from __future__ import annotations

import asyncio

import pytest
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.gateway.engine import LONGEST_PAUSE_S, STABLE_AFTER_S, EngineSupervisor, RestartBackoff
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.interface import EngineState


def test_engine_is_restarted_after_a_loss() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript(start_s=2.0))
        ready_s: list[float] = []
        supervisor = EngineSupervisor(synthesizer, lambda: ready_s.append(asyncio.get_running_loop().time()))
        running = asyncio.create_task(supervisor.run())
        await asyncio.sleep(1)
        assert supervisor.reason == "the voice model is loading"
        synthesizer.start_progress = "warming up, about 3 s left"
        assert supervisor.reason == "the voice model is loading: warming up, about 3 s left"
        synthesizer.start_progress = ""
        await asyncio.sleep(2)
        assert supervisor.reason is None
        synthesizer.lose()
        await asyncio.sleep(1)
        assert supervisor.reason is not None
        assert "restarted" in supervisor.reason
        await asyncio.sleep(2)
        assert supervisor.reason is None
        assert ready_s == [2.0, pytest.approx(5.0, abs=0.3)]
        running.cancel()

    run(scene())


def test_failed_restart_is_retried_with_longer_pauses() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript())
        supervisor = EngineSupervisor(synthesizer, lambda: None)
        running = asyncio.create_task(supervisor.run())
        await asyncio.sleep(1)
        synthesizer.script.start_failures = [EngineError("no memory")] * 4
        synthesizer.lose()
        await asyncio.sleep(6)
        assert synthesizer.starts == 1 + 4
        await asyncio.sleep(4)
        assert synthesizer.state is EngineState.READY
        running.cancel()

    run(scene())


def test_failure_of_the_first_start_is_raised() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript(start_failures=[EngineError("no such checkpoint")]))
        with pytest.raises(EngineError):
            await EngineSupervisor(synthesizer, lambda: None).run()

    run(scene())


def test_crash_loop_is_slowed_down_and_reported() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript())
        supervisor = EngineSupervisor(synthesizer, lambda: None)
        running = asyncio.create_task(supervisor.run())
        for _ in range(300):
            await asyncio.sleep(1)
            if supervisor.state is EngineState.READY:
                synthesizer.lose()
        assert synthesizer.starts < 15, "not one a second"
        await asyncio.sleep(1)
        assert supervisor.reason is not None
        assert "failures in a row" in supervisor.reason
        running.cancel()

    run(scene())


def test_degraded_engine_is_not_restarted() -> None:
    async def scene() -> None:
        synthesizer = ToneSynthesizer(ToneScript())
        polled_states = []
        supervisor = EngineSupervisor(synthesizer, lambda: None, lambda: polled_states.append(supervisor.state))
        running = asyncio.create_task(supervisor.run())
        await asyncio.sleep(0.1)
        synthesizer._state = EngineState.DEGRADED
        await asyncio.sleep(2)
        assert (supervisor.reason, synthesizer.starts) == (None, 1)
        assert set(polled_states) == {EngineState.DEGRADED}
        running.cancel()

    run(scene())


def test_first_restart_is_immediate_and_later_ones_wait_longer() -> None:
    backoff = RestartBackoff()
    backoff.on_ready(0.0)
    assert [backoff.on_lost(10.0 + n) for n in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert [backoff.on_lost(100.0) for _ in range(50)][-1] == LONGEST_PAUSE_S


def test_engine_that_fails_soon_after_each_start_is_restarted_ever_more_slowly() -> None:
    backoff, now_s, pauses = RestartBackoff(), 0.0, []
    for _ in range(12):
        backoff.on_ready(now_s)
        now_s += 10.0
        pauses.append(backoff.on_lost(now_s))
        now_s += pauses[-1]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


def test_backoff_resets_after_a_long_uptime() -> None:
    backoff = RestartBackoff()
    backoff.on_ready(0.0)
    backoff.on_lost(1.0)
    backoff.on_ready(2.0)
    assert backoff.on_lost(3.0) == 0.5
    backoff.on_ready(4.0)
    assert backoff.on_lost(4.0 + STABLE_AFTER_S) == 0.0
    assert backoff.failures == 1
