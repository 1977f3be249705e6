from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter
from dataclasses import dataclass, field

from .scorecard.card import Trial, row
from .testbed.expected_audio import ReceivedUtterance, percentile
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, text_of
from .testbed.raw_websocket import RawClient, connect

RESTART_S = 2.0
SAMPLE_S = 5.0
PATIENCE_S = 40.0
INTERRUPTS, DROPS, MISBEHAVES = 0.12, 0.2, 0.3
"""Shares of utterances, cumulated; the rest of the last stall."""
EXPECTED = {"done", "interrupted", "lost", "engine_lost", "engine_not_ready", "at_capacity", "slow_consumer"}


@dataclass
class SoakLog:
    """What the soak keeps: figures, not audio."""

    outcomes: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)
    gaps_ms: list[tuple[float, float]] = field(default_factory=list)
    """(when, the longest gap of an utterance that nothing disturbed)"""
    memory_mib: list[tuple[float, float]] = field(default_factory=list)


@row(
    "E1",
    "soak with cancels, drops, stalls and one engine death",
    "1 h: memory slope < 1 %, 0 oracle mismatches, p99 of the last sixth ≤ 1.1 × the first",
    nightly_s=615,
    release_s=3620,
    timed=True,
)
async def soak(trial: Trial) -> None:
    seconds = trial.size(600, release=3600, least=20)
    speakers = 60
    log = SoakLog()
    talker = {"start_s": RESTART_S}
    async with tone_gateway(slots=speakers, talker=talker, **UNLIMITED) as served:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(speakers):
                group.create_task(_speaker(served, random.Random(trial.seed + number), began_s, seconds, log))
            group.create_task(_watch(served, began_s, seconds, log))
        await served.until_idle(60)
        _check_soak(trial, log, seconds)
        trial.equal("complaints", len([line for line in served.complaints if "engine lost" not in line]), 0)


async def _speaker(served: GatewayProcess, chance: random.Random, began_s: float, seconds: float, log: SoakLog) -> None:
    """Sessions of a few utterances, one after another; now and then one that does not behave."""
    loop = asyncio.get_running_loop()
    while (now_s := loop.time() - began_s) < seconds:
        client: RawClient = await connect(served.port)
        for turn in range(chance.randint(1, 5)):
            codec = chance.choice(["pcm", "opus"])
            # Few texts, so that the oracle has each at hand.
            heard = client.say(text_of(chance.choice([2, 4]), chance.randrange(8)), name=f"u{turn}", codec=codec)
            calm = await _behave(client, heard, f"u{turn}", chance)
            log.outcomes[heard.outcome] += 1
            if heard.mismatch:
                log.mismatches.append(heard.mismatch)
            if calm and heard.gaps_ms[6:]:
                log.gaps_ms.append((now_s, max(heard.gaps_ms[6:])))
            if client.closed.done():
                break
        client.abort()


async def _behave(client: RawClient, heard: ReceivedUtterance, name: str, chance: random.Random) -> bool:
    """Wait for the end, or bring it about. Returns whether nothing was done to it."""
    kind = chance.random()
    try:
        await heard.ended(chance.uniform(0.1, 3) if kind < MISBEHAVES else PATIENCE_S)
    except TimeoutError:
        if kind < INTERRUPTS:
            client.send(type="interrupt", utterance=name)
        elif kind < DROPS:
            client.abort()
        else:
            client.transport.pause_reading()
            await asyncio.sleep(chance.choice([0.5, 2.0]))
            client.transport.resume_reading()
        await heard.ended(PATIENCE_S)
        return False
    if heard.outcome in ("engine_not_ready", "at_capacity"):
        await asyncio.sleep(heard.end["retry_after_ms"] / 1000)
    return heard.outcome == "done"


async def _watch(served: GatewayProcess, began_s: float, seconds: float, log: SoakLog) -> None:
    """Sample the memory; in the middle the engine dies."""
    loop = asyncio.get_running_loop()
    died = False
    while (now_s := loop.time() - began_s) < seconds:
        log.memory_mib.append((now_s, served.memory_bytes / 2**20))
        if not died and now_s > seconds / 2:
            died = True
            await served.ask("lose")
        await asyncio.sleep(min(SAMPLE_S, seconds / 20))


def _check_soak(trial: Trial, log: SoakLog, seconds: float) -> None:
    # What is allocated once is there after the first sixth.
    steady = [(at_s, mib) for at_s, mib in log.memory_mib if at_s > seconds / 6]
    slope = statistics.linear_regression([at_s for at_s, _ in steady], [mib for _, mib in steady]).slope
    first = percentile([ms for at_s, ms in log.gaps_ms if at_s < seconds / 6], 99)
    last = percentile([ms for at_s, ms in log.gaps_ms if at_s > seconds * 5 / 6], 99)
    trial.note("minutes", seconds / 60)
    trial.note("utterances", log.outcomes.total())
    trial.note("outcomes", ", ".join(f"{count} {name}" for name, count in log.outcomes.most_common()))
    trial.equal("unexpected outcomes", sum(count for name, count in log.outcomes.items() if name not in EXPECTED), 0)
    trial.equal("mismatches", len(log.mismatches), 0)
    trial.missed += log.mismatches[:3]
    trial.note("memory MiB", steady[-1][1])
    trial.most("memory slope, % of it", 100 * slope * seconds / steady[-1][1], 1)
    trial.note("longest gap p99 ms, first sixth", first)
    trial.most("longest gap p99, last sixth to first", last / first if first else 0.0, 1.1, timed=True)
