"""What is lost when a worker or the engine dies, hangs or does not start: its own, and nothing of others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import aiohttp
import numpy as np
import psutil
import pytest
from fakes.gateway.worker_processes import (
    DEMO,
    WORKERS,
    connections,
    every_worker_speaks,
    gateway,
    say,
    serves,
    url,
)
from fakes.pipeline.tone_engine import ToneEngine
from fakes.waiting import DEADLINE_S, until
from voxgate.gateway.engine import RestartBackoff
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers import worker_process as process
from voxgate.gateway.workers.speech_process import SpeechProcess
from voxgate.pipeline.errors import EngineError

HEARTBEAT_TIMEOUT_S = 3.0
"""Shorter than in operation, and long enough for a healthy worker on a busy machine; the rule itself is tested with
numbers in tests/pipeline/ipc/test_watchdog.py."""


async def test_speech_of_a_lost_worker_goes_on_at_another() -> None:
    engine = ToneEngine(DEMO, step_s=0.02)
    async with gateway(engine) as served:
        async with contextlib.AsyncExitStack() as stack:
            by_worker = await connections(served, stack, 12)
            (doomed, *_), (spared, *_) = by_worker.values()
            text = "This sentence goes on for long enough to be cut in the middle of it. " * 3
            ends = asyncio.gather(say(doomed, text, seed=3), say(spared, text, seed=3), return_exceptions=True)
            await until(lambda: engine.frames >= 10)
            assert engine.lent == 2
            victim = next(pid for pid in served.pids if serves(pid, doomed))
            os.kill(victim, signal.SIGKILL)
            moved, heard = await ends
            assert not isinstance(moved, BaseException)
            assert not isinstance(heard, BaseException)
            assert moved[1].reason == heard[1].reason == "end"
            assert np.array_equal(moved[0], heard[0])
        await until(lambda: not engine.lent)
        await until(lambda: victim not in served.pids and len(served.pids) == WORKERS)
        await until(lambda: all(worker.attached for worker in served._workers.values()))
        await every_worker_speaks(served)


async def test_a_worker_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEARTBEAT_TIMEOUT_S", HEARTBEAT_TIMEOUT_S)
    monkeypatch.setattr(process, "HEARTBEAT_INTERVAL_S", HEARTBEAT_TIMEOUT_S / 10)
    async with gateway() as served:
        stopped = served.pids[0]
        os.kill(stopped, signal.SIGSTOP)
        await until(lambda: stopped not in served.pids and len(served.pids) == WORKERS)
        assert not psutil.pid_exists(stopped)
        await until(lambda: all(worker.attached for worker in served._workers.values()))
        await every_worker_speaks(served)


async def test_worker_lost_during_the_engine_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEARTBEAT_TIMEOUT_S", HEARTBEAT_TIMEOUT_S)
    monkeypatch.setattr(process, "HEARTBEAT_INTERVAL_S", HEARTBEAT_TIMEOUT_S / 10)
    async with gateway(before=lambda served: os.kill(served.pids[0], signal.SIGSTOP)) as served:
        assert served.state.speaks
        await every_worker_speaks(served)


async def test_counts_of_a_lost_worker_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestartBackoff, "on_lost", lambda *_: 60.0)  # no successor starts during the test
    async with gateway() as served, contextlib.AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        by_worker = await connections(served, stack, 12, resume=False)
        opened = sum(map(len, by_worker.values()))
        for session, *_ in by_worker.values():
            await say(session, "Counted.")
        await (await http.get(f"{url(served)}/metrics", headers={"Connection": "close"})).text()
        (doomed, *_), spared = by_worker.values()
        victim = next(pid for pid in served.pids if serves(pid, doomed))
        os.kill(victim, signal.SIGKILL)
        await until(lambda: victim not in served.pids)

        async def lines() -> list[str]:
            answer = await http.get(f"{url(served)}/metrics", headers={"Connection": "close"})
            return (await answer.text()).splitlines()

        async def counts_the_loss() -> bool:
            return f'voxgate_sockets{{protocol="native"}} {len(spared)}.0' in await lines()

        await until(counts_the_loss)
        told = await lines()
        assert 'voxgate_utterances_total{outcome="done",protocol="native"} 2.0' in told
        assert f'voxgate_sessions_total{{protocol="native"}} {opened}.0' in told


async def test_utterances_go_on_in_the_next_engine_to_the_sample() -> None:
    engine = ToneEngine(DEMO, step_s=0.02)
    async with gateway(engine) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        sessions = [each[0] for each in by_worker.values()]
        text = "Cut in the middle of it all. " * 5
        expected, _ = await say(sessions[0], text)
        engine.frames = 0
        spoken = asyncio.gather(*(say(session, text) for session in sessions))
        await until(lambda: engine.frames >= 10)
        engine.lose()
        for audio, done in await spoken:
            assert audio.tolist() == expected.tolist()
            assert done.reason == "end"
        assert engine.starts == 2
        await until(lambda: engine.lent == 0)
        for session in sessions:
            assert (await say(session, "And on we go."))[1].reason == "end"


@pytest.mark.parametrize(
    ("command", "told"),
    [([sys.executable, "-c", ""], EngineError), (["/nowhere/python"], OSError)],
    ids=["ends", "is not there"],
)
async def test_failed_start_of_a_worker_is_raised(command: list[str], told: type[Exception]) -> None:
    served = SpeechProcess(Settings(port=0, workers=2), ToneEngine(DEMO), DEMO, 2, command)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(told, match=r"^worker ended before|No such file"):
            await served.open()
        await served.close()
