from __future__ import annotations

import asyncio
import signal
import time

import psutil

from .scorecard.card import Trial, row
from .testbed.expected_audio import all_ended
from .testbed.gateway_process import GatewayProcess, voice_gateway
from .testbed.raw_websocket import RawClient, clients, connect

SESSIONS = 6
TEXT = "The bakery on the corner sells fresh bread every morning, and the coffee is very good. " * 4
LISTEN_S = 1.5
HANG_S = 5.0
"""Without a step for so long an engine counts as hung."""


@row(
    "F1",
    "engine process SIGKILLed while sessions speak",
    "every utterance a typed, retryable error ≤ 1 s; sockets open; ready again ≤ 1.2 × cold start; 0 orphans",
    nightly_s=45,
    release_s=120,
    timed=True,
    voice=True,
)
async def engine_killed(trial: Trial) -> None:
    await lose_engine(trial, signal.SIGKILL, kills=trial.size(1, release=5), error_ms=1000)


async def lose_engine(trial: Trial, number: signal.Signals, kills: int, error_ms: float) -> None:
    """Also F2's: the engine is killed, or stopped, and everything has to come back by itself."""
    began_s = time.monotonic()
    async with voice_gateway(starts_per_s=100) as served:
        cold_s = time.monotonic() - began_s
        trial.note("cold start s", cold_s)
        listeners = await clients(served.port, SESSIONS)
        family = len(served.family)
        late_ms, wrong, again_s = [], 0, 0.0
        for kill in range(kills):
            heard = [client.say(TEXT, name=f"k{kill}", codec="pcm") for client in listeners]
            await _all_speak(listeners)
            await asyncio.sleep(LISTEN_S)
            engine = engine_of(served)
            struck_s = listeners[0].now()
            engine.send_signal(number)
            await all_ended(heard, 30)
            late_ms += [1000 * ((one.over_s or struck_s) - struck_s) for one in heard]
            wrong += sum(not (one.outcome == "engine_lost" and one.end.get("retryable")) for one in heard)
            again_s = max(again_s, await _ready_again_s(served))
        trial.note("kills", kills)
        trial.equal("errors of another kind", wrong, 0)
        trial.most("error after ms, max", max(late_ms), error_ms, timed=True)
        trial.equal("sockets closed", sum(client.closed.done() for client in listeners), 0)
        trial.most("ready again, of a cold start", again_s / cold_s, 1.2, timed=True)
        trial.equal("processes more than before", len(served.family) - family, 0)
        after = listeners[0].say("Here again.", name="after", pacing="none")
        trial.equal("speaks again", await after.ended(60), "done")


def engine_of(served: GatewayProcess) -> psutil.Process:
    """vLLM's process, which does the steps."""
    return next(child for child in served.family if "EngineCore" in " ".join([child.name(), *child.cmdline()]))


async def _all_speak(listeners: list[RawClient]) -> None:
    async with asyncio.timeout(60):
        while not all(list(client.heard.values())[-1].playback.arrivals for client in listeners):
            await asyncio.sleep(0.02)


async def _ready_again_s(served: GatewayProcess) -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(300):
        while (await served.get("/readyz"))[0] != 200:
            await asyncio.sleep(0.1)
    return loop.time() - began_s


@row(
    "F2",
    "engine hangs (SIGSTOP)",
    "watchdog: as F1 after 5 s without a step",
    nightly_s=50,
    timed=True,
    voice=True,
)
async def engine_hangs(trial: Trial) -> None:
    await lose_engine(trial, signal.SIGSTOP, kills=1, error_ms=1000 * HANG_S + 1000)


@row("F4", "gateway SIGKILLed in mid-speech", "engine processes gone ≤ 10 s", nightly_s=20, voice=True)
async def gateway_killed(trial: Trial) -> None:
    async with voice_gateway() as served:
        client = await connect(served.port)
        client.say("This is going to be cut off in the midst of a sentence that is long enough for it.")
        await asyncio.sleep(1)
        family = served.family
        served.signal(signal.SIGKILL)
        began_s = time.monotonic()
        await served.gone()
        while any(map(_runs, family)) and time.monotonic() - began_s < 30:
            await asyncio.sleep(0.05)
        trial.note("processes", len(family))
        trial.equal("left", sum(map(_runs, family)), 0)
        trial.most("gone after s", time.monotonic() - began_s, 10)


def _runs(process: psutil.Process) -> bool:
    """A zombie has ended: a container's first process may not collect what it inherits."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
