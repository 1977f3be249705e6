from __future__ import annotations

import asyncio

from .scorecard.card import Trial, row
from .testbed.expected_audio import all_ended, mismatches
from .testbed.fault_proxy import Fault, bad_network
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, text_of
from .testbed.raw_websocket import RawClient, clients, connect

PING_INTERVAL_S, PING_TIMEOUT_S = 2, 3
CLOSING_S = 1
SPEECH_S = 4.0
ARRIVES = {Fault.LATENCY, Fault.SLICES}
"""A network that is only slow loses nothing."""


@row(
    "F6",
    "bad network: latency, 1-byte slices, reset, half-close, silence",
    "0 corrupt audio, everything freed ≤ ping interval + timeout + 1 s",
    nightly_s=35,
)
async def network_faults(trial: Trial) -> None:
    each = trial.size(40, least=3)
    settings = UNLIMITED | {"ping_interval_s": PING_INTERVAL_S, "ping_timeout_s": PING_TIMEOUT_S}
    async with tone_gateway(slots=each, **settings) as served:
        corrupt, freed_s = 0, 0.0
        for fault in Fault:
            spoilt, seconds = await _through(served, fault, each, trial)
            corrupt += spoilt
            freed_s = max(freed_s, seconds)
        trial.note("connections a fault", each)
        trial.equal("corrupt", corrupt, 0)
        trial.most("freed after s, max", freed_s, PING_INTERVAL_S + PING_TIMEOUT_S + CLOSING_S)
        trial.equal("sockets left", (await served.get("/v1/limits"))[1]["sockets"]["open"], 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _through(served: GatewayProcess, fault: Fault, count: int, trial: Trial) -> tuple[int, float]:
    """Speak over that network. Returns how many heard something else, and when the gateway had forgotten them."""
    async with bad_network(served.port, fault, trial.seed) as network:
        listeners: list[RawClient] = await asyncio.gather(*(connect(network.port) for _ in range(count)))
        heard = [
            client.say(text_of(SPEECH_S, n % 4), codec=("pcm", "opus")[n % 2]) for n, client in enumerate(listeners)
        ]
        if fault in ARRIVES:
            await all_ended(heard, 60)
            trial.equal(f"done with {fault}", sum(one.outcome == "done" for one in heard), count)
        else:
            await asyncio.sleep(1.5)  # by then it has struck everywhere
        began_s = asyncio.get_running_loop().time()
        if fault in ARRIVES:
            for client in listeners:
                client.abort()
        async with asyncio.timeout(60):
            while (await served.get("/v1/limits"))[1]["sockets"]["open"]:
                await asyncio.sleep(0.1)
        await served.until_idle()
        return len(mismatches(heard)), asyncio.get_running_loop().time() - began_s


DESCRIPTOR_SPEECH_S = 8.0
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
        heard = [client.say(text_of(DESCRIPTOR_SPEECH_S, number % 8)) for number, client in enumerate(listeners)]
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


async def _try(port: int) -> RawClient | None:
    """A session, or None when none can be had within two seconds."""
    try:
        async with asyncio.timeout(2):
            client: RawClient = await connect(port)
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
