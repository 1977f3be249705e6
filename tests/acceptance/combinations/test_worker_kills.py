"""Workers killed at random moments, alone, together, and while the engine is lost or clients vanish: real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable

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
    ready,
    say,
    serves,
    url,
)
from fakes.pipeline.tone_engine import ToneEngine
from fakes.waiting import until
from voxgate.client import SessionLost, SpeechError, connect
from voxgate.client.session import Session
from voxgate.gateway.engine import RestartBackoff
from voxgate.gateway.workers.speech_process import SpeechProcess

from ..testbed.measuring import Figures, nightly

TEXT = "This sentence goes on for long enough to be cut in the middle of it. "
STEP_S = 0.02
MOMENT_S = 1.5
"""A round's misfortunes happen within this time; the speech takes longer."""
RESTART_S = 0.1
SPARE_DESCRIPTORS = 6
"""Some sockets and tables of a worker are opened when they are first used; this many do not grow with the rounds."""
IDLE = ("voxgate_active_utterances 0.0", "voxgate_queued_utterances 0.0", 'voxgate_sockets{protocol="native"} 0.0')
EXCUSED_CODES = {"engine_not_ready", "at_capacity"}


@pytest.mark.parametrize("rounds", [2, nightly(40)])
async def test_killed_workers_cost_only_their_own_sockets(
    rounds: int, seed: int, scaled: Callable[..., int], figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the successor of each further worker starts twice as late as the one before, up to a minute.
    monkeypatch.setattr(RestartBackoff, "on_lost", lambda *_: RESTART_S)
    engine, process, chance = ToneEngine(DEMO, step_s=STEP_S), psutil.Process(), random.Random(seed)
    killed = 0
    async with gateway(engine) as served:
        async with connect(url(served)) as session:
            expected, _ = await say(session, TEXT)
        await _at_rest(served, engine)
        descriptors = process.num_fds()
        for _ in range(scaled(rounds)):
            killed += await _round(served, engine, chance, expected)
            await _at_rest(served, engine)
            await until(lambda: process.num_fds() <= descriptors + SPARE_DESCRIPTORS)
            await every_worker_speaks(served)
    figures.note("workers killed", killed)


async def _round(served: SpeechProcess, engine: ToneEngine, chance: random.Random, expected: np.ndarray) -> int:
    """Clients speak while workers are killed; checks what each client heard. Returns how many workers were killed."""
    async with contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, chance.randint(3, 8))
        pids = {name: _pid(served, sessions[0]) for name, sessions in by_worker.items()}
        doomed = chance.sample(sorted(by_worker), chance.choice([1, 1, 2]))
        loses_engine = chance.random() < 0.25
        hears, excused = [], []
        for name, sessions in sorted(by_worker.items()):
            for session in sessions:
                hears.append(asyncio.create_task(say(session, TEXT, pacing=chance.choice(["none", "playback"]))))
                vanishes = chance.random() < 0.2
                excused.append(name in doomed or vanishes)
                if vanishes:
                    delay_s = chance.uniform(0, MOMENT_S)
                    asyncio.get_running_loop().call_later(delay_s, session.transport.abort)
        for name in doomed:
            await asyncio.sleep(chance.uniform(0, MOMENT_S / len(doomed)))
            os.kill(pids[name], signal.SIGKILL)
            if loses_engine and name == doomed[0]:
                engine.lose()
        outcomes = await asyncio.gather(*hears, return_exceptions=True)
    for outcome, may_be_lost in zip(outcomes, excused, strict=True):
        if isinstance(outcome, SessionLost):
            assert may_be_lost, "a socket of a worker that lives was lost"
        elif isinstance(outcome, SpeechError):
            assert may_be_lost or (loses_engine and outcome.code in EXCUSED_CODES), outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            assert np.array_equal(outcome[0], expected)
    await until(lambda: not {pids[name] for name in doomed} & set(served.pids) and len(served.pids) == WORKERS)
    return len(doomed)


def _pid(served: SpeechProcess, session: Session) -> int:
    """The worker that serves a session."""
    return next(pid for pid in served.pids if serves(pid, session))


async def _at_rest(served: SpeechProcess, engine: ToneEngine) -> None:
    """Waits until every worker is back and no slot, place in the queue or socket is taken."""
    await ready(served)
    await until(lambda: engine.lent == 0)
    async with aiohttp.ClientSession(headers={"Connection": "close"}) as http:

        async def idle() -> bool:
            async with http.get(f"{url(served)}/readyz") as answer:
                if answer.status != 200:
                    return False
            async with http.get(f"{url(served)}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            return all(line in lines for line in IDLE)

        await until(idle)
