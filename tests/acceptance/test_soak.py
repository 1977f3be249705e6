"""A long run with interruptions, lost connections, stalled readers and one engine loss."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter
from dataclasses import dataclass, field

import pytest
from fakes.waiting import DEADLINE_S

from .testbed.expected_audio import ReceivedUtterance, percentile
from .testbed.gateway_process import GatewayProcess, tone_gateway
from .testbed.listeners import UNLIMITED, speech_text
from .testbed.measuring import Figures
from .testbed.raw_websocket import RawClient, connect

SPEAKERS = 60
ENGINE_START_S = 2.0
SAMPLE_S = 5.0
INTERRUPTS, DROPS, MISBEHAVES = 0.12, 0.2, 0.3
"""Shares of the utterances, cumulative; between the last two the client stops reading for a while."""
OUTCOMES = {"done", "interrupted", "lost", "engine_lost", "engine_not_ready", "at_capacity", "slow_consumer"}
MEMORY_GROWTH_PERCENT = 1
MEMORY_CHECK_S = 600
"""Shortest run whose memory growth is judged."""
GAP_RATIO = 1.1


@dataclass
class SoakLog:
    """Figures of the run; audio is compared at once and not kept."""

    outcomes: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)
    gaps_ms: list[tuple[float, float]] = field(default_factory=list)
    """(time s, longest gap ms) of the utterances that nothing disturbed."""
    memory_mib: list[tuple[float, float]] = field(default_factory=list)


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet_machine")
async def test_soak(request: pytest.FixtureRequest, seed: int, figures: Figures) -> None:
    seconds = float(request.config.option.soak_s)
    log = SoakLog()
    async with tone_gateway(slots=SPEAKERS, talker={"start_s": ENGINE_START_S}, **UNLIMITED) as gateway:
        began_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number in range(SPEAKERS):
                group.create_task(_speak(gateway, random.Random(seed + number), began_s, seconds, log))
            group.create_task(_watch(gateway, began_s, seconds, log))
        await gateway.until_idle()
        assert [line for line in gateway.log_errors if "engine lost" not in line] == []
    _check(figures, log, seconds)


async def _speak(gateway: GatewayProcess, chance: random.Random, began_s: float, seconds: float, log: SoakLog) -> None:
    """Sessions of a few utterances, one after another."""
    loop = asyncio.get_running_loop()
    while (now_s := loop.time() - began_s) < seconds:
        client = await connect(gateway.port)
        for turn in range(chance.randint(1, 5)):
            codec = chance.choice(["pcm", "opus"])
            # Few texts, so that the expected audio of each is cached.
            received = client.say(speech_text(chance.choice([2, 4]), chance.randrange(8)), name=f"u{turn}", codec=codec)
            undisturbed = await _listen_or_misbehave(client, received, f"u{turn}", chance)
            log.outcomes[received.outcome] += 1
            if received.mismatch:
                log.mismatches.append(received.mismatch)
            if undisturbed and received.gaps_ms:
                log.gaps_ms.append((now_s, max(received.gaps_ms)))
            if client.closed.done():
                break
        client.abort()


async def _listen_or_misbehave(
    client: RawClient, received: ReceivedUtterance, name: str, chance: random.Random
) -> bool:
    """Wait for the end of the utterance, or disturb it. Returns whether it was left alone."""
    kind = chance.random()
    try:
        await received.ended(chance.uniform(0.1, 3) if kind < MISBEHAVES else DEADLINE_S)
    except TimeoutError:
        if kind >= MISBEHAVES:
            raise
        if kind < INTERRUPTS:
            client.send(type="interrupt", utterance=name)
        elif kind < DROPS:
            client.abort()
        else:
            client.transport.pause_reading()
            await asyncio.sleep(chance.choice([0.5, 2.0]))
            client.transport.resume_reading()
        await received.ended()
        return False
    if received.outcome in ("engine_not_ready", "at_capacity"):
        await asyncio.sleep(received.end["retry_after_ms"] / 1000)
    return received.outcome == "done"


async def _watch(gateway: GatewayProcess, began_s: float, seconds: float, log: SoakLog) -> None:
    """Sample the memory, and lose the engine in the middle of the run."""
    loop = asyncio.get_running_loop()
    lost = False
    while (now_s := loop.time() - began_s) < seconds:
        log.memory_mib.append((now_s, gateway.memory_bytes / 2**20))
        if not lost and now_s > seconds / 2:
            lost = True
            await gateway.ask("lose")
        await asyncio.sleep(min(SAMPLE_S, seconds / 20))


def _check(figures: Figures, log: SoakLog, seconds: float) -> None:
    # What is allocated once is allocated within the first sixth.
    steady = [(at_s, mib) for at_s, mib in log.memory_mib if at_s > seconds / 6]
    slope = statistics.linear_regression([at_s for at_s, _ in steady], [mib for _, mib in steady]).slope
    first_ms = percentile([ms for at_s, ms in log.gaps_ms if at_s < seconds / 6], 99)
    last_ms = percentile([ms for at_s, ms in log.gaps_ms if at_s > seconds * 5 / 6], 99)
    figures.note("minutes", seconds / 60)
    figures.note("utterances", log.outcomes.total())
    figures.note("outcomes", ", ".join(f"{count} {name}" for name, count in log.outcomes.most_common()))
    figures.note("memory MiB", steady[-1][1])
    figures.note("longest gap p99 ms, first sixth", first_ms)
    assert set(log.outcomes) <= OUTCOMES
    assert log.mismatches == []
    # A shorter run says little about growth: caches still fill.
    limit_percent = MEMORY_GROWTH_PERCENT if seconds >= MEMORY_CHECK_S else float("inf")
    figures.at_most("memory growth, percent", 100 * slope * seconds / steady[-1][1], limit_percent)
    figures.time_at_most("longest gap p99, last sixth to first", last_ms / first_ms if first_ms else 0.0, GAP_RATIO)
