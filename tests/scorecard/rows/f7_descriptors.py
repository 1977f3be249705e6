from __future__ import annotations

import asyncio

from ..card import Trial, row
from ..chorus import text_of
from ..gateways import tone_gateway
from ..oracle import all_ended, mismatches
from ..wire import Client, clients, connect

SPEECH_S = 8.0
ROOM = 40
"""Descriptors left for newcomers."""
TRIES = 120


@row(
    "F7", "file descriptors run out", "running sessions unaffected, accepting again ≤ 1 s after they free", nightly_s=20
)
async def descriptors_run_out(trial: Trial) -> None:
    running = trial.size(40, least=5)
    async with tone_gateway(slots=running) as served:
        listeners = await clients(served.port, running)
        heard = [client.say(text_of(SPEECH_S, number % 8)) for number, client in enumerate(listeners)]
        await asyncio.sleep(1)
        served.limit_descriptors(served.descriptors + ROOM)
        tried = await asyncio.gather(*(_try(served.port) for _ in range(TRIES)))
        opened = [client for client in tried if client is not None]
        await asyncio.sleep(1)
        for client in opened:
            client.abort()
        again_s = await _accepting_again_s(served.port)
        await all_ended(heard, 60)
        trial.note("running", running)
        trial.note("newcomers accepted", len(opened))
        trial.most("newcomers accepted of those tried", len(opened), TRIES - 1)
        trial.equal("running ones done", sum(one.outcome == "done" for one in heard), running)
        trial.equal("mismatches", len(mismatches(heard)), 0)
        trial.most("underruns", sum(one.playback.underruns(200) for one in heard), 0, timed=True)
        trial.most("accepting again after s", again_s, 1.0)


async def _try(port: int) -> Client | None:
    """A session, or None when none can be had within two seconds."""
    try:
        async with asyncio.timeout(2):
            client: Client = await connect(port)
    except (OSError, TimeoutError):
        return None
    return client if client.answered.result() == 101 else None


async def _accepting_again_s(port: int) -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(20):
        while await _try(port) is None:
            await asyncio.sleep(0.02)
    return loop.time() - began_s
