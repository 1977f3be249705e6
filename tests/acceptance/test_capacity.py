from __future__ import annotations

import asyncio

from .scorecard.card import Trial, row
from .testbed.expected_audio import all_ended
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, chorus, text_of
from .testbed.raw_websocket import clients


@row(
    "C1",
    "PCM sessions, 80 ms messages, client and gateway on the same 2 cores",
    "500, gap p99 ≤ 90 ms, 0 underruns at a 200 ms buffer",
    light_s=25,
    nightly_s=60,
    timed=True,
)
async def pcm_sessions(trial: Trial) -> None:
    await sessions(trial, trial.size(500, light=100), "pcm", gap_ms=90)


async def sessions(trial: Trial, count: int, codec: str, gap_ms: float) -> None:
    """Also C2's, and C5's: the loop's lag is measured meanwhile."""
    seconds = trial.size(40, light=10, least=5)
    async with tone_gateway(slots=count, **UNLIMITED) as served:
        await chorus(served.port, max(1, count // 10), 2, codec=codec)  # warm
        await served.ask("watch_lag")
        cpu_s = served.cpu_s
        sung = await chorus(served.port, count, seconds, codec=codec)
        trial.note("sessions", count)
        trial.most("gap p99 ms", sung.gap_p99_ms, gap_ms, timed=True)
        trial.most("underruns", sung.underruns(), 0, timed=True)
        trial.equal("mismatches", len(sung.mismatches), 0)
        trial.equal("unfinished", sung.unfinished, 0)
        trial.note("gateway's cores", (served.cpu_s - cpu_s) / seconds)
        trial.note("loop lag ms", (await served.ask("lag"))["p99"])
        trial.equal("complaints", len(served.complaints), 0)


@row("C2", "the same with real Opus", "150, gap p99 ≤ 95 ms", nightly_s=60, timed=True)
async def opus_sessions(trial: Trial) -> None:
    await sessions(trial, trial.size(150), "opus", gap_ms=95)


@row(
    "C5",
    "event-loop lag of the gateway under C1",
    "p99 ≤ 5 ms, max ≤ 50 ms",
    nightly_s=35,
    timed=True,
)
async def loop_lag(trial: Trial) -> None:
    count, seconds = trial.size(500), trial.size(20, least=5)
    async with tone_gateway(slots=count, **UNLIMITED) as served:
        await chorus(served.port, max(1, count // 10), 2)
        await served.ask("watch_lag")
        sung = await chorus(served.port, count, seconds)
        lag_ms = await served.ask("lag")
        trial.note("sessions", count)
        trial.most("lag p99 ms", lag_ms["p99"], 5, timed=True)
        trial.most("lag max ms", lag_ms["max"], 50, timed=True)
        trial.equal("mismatches", len(sung.mismatches), 0)


SPEAKING_S = 8.0


@row("C6", "memory", "idle connection ≤ 48 KiB, speaking ≤ 384 KiB", nightly_s=30)
async def memory(trial: Trial) -> None:
    idle, speaking = trial.size(900, least=100), trial.size(400, least=40)
    async with tone_gateway(slots=speaking, sockets=idle + 100, **UNLIMITED) as served:
        await chorus(served.port, 50, 2, codec="opus")  # what is loaded and allocated once
        before_bytes = served.memory_bytes
        listeners = await clients(served.port, idle)
        await asyncio.sleep(1)
        idle_bytes = served.memory_bytes
        trial.note("idle connections", idle)
        trial.most("KiB idle", (idle_bytes - before_bytes) / idle / 1024, 48)
        heard = [
            client.say(text_of(SPEAKING_S, number % 8), codec="opus")
            for number, client in enumerate(listeners[:speaking])
        ]
        await asyncio.sleep(SPEAKING_S / 2)
        trial.note("speaking", sum(one.outcome == "open" for one in heard))
        trial.most("KiB speaking", (served.memory_bytes - idle_bytes) / speaking / 1024, 384)
        await all_ended(heard, 60)
        trial.equal("mismatches", sum(bool(one.mismatch) for one in heard), 0)
        for client in listeners:
            client.abort()
