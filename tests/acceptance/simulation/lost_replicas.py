"""Clients of several gateways that are killed or drained at random moments, compared with an undisturbed run.

Sessions, checkpoints and the Python client are the real ones; network and balancer are not. Even seeds speak through
the real pipeline without a model, odd ones through the tone synthesizer. Connections are lost and engines too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from fakes.gateway.lossy_fleet import LossyFleet
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run

from .lost_connections import LEARNS_S, WITHIN_S, Heard, Plan, plan, speak
from .model_free_pipeline import ModelFreePipeline

SLOTS = 40
"""Of each gateway: enough for all utterances, so that none waits for long."""


def simulate_lost_replicas(seed: int) -> tuple[int, list[float]]:
    """Runs one seed with and without losses. Raises AssertionError when speech differs.

    Returns how often utterances went on at another gateway, and the durations of drains in seconds.
    """
    chance = random.Random(seed)
    plans = [plan(chance) for _ in range(chance.randint(1, 3))]
    drains_s: list[float] = []
    undisturbed = run(_scene(seed, plans, None, drains_s))
    disturbed = run(_scene(seed, plans, random.Random(seed), drains_s), disorder=random.Random(seed))
    for expected, heard in zip(undisturbed, disturbed, strict=True):
        assert expected.done is not None
        timed = seed % 2 == 1
        assert heard.comparable(timed=timed) == expected.comparable(timed=timed)
    return sum(heard.moves for heard in disturbed), drains_s


def _synthesizer(seed: int) -> Callable[[], Any]:
    if seed % 2:
        return lambda: ToneSynthesizer(ToneScript(frame_s=0.01, close_s=0.02), slots=SLOTS)
    return lambda: ModelFreePipeline(slots=SLOTS, frame_s=0.01)


async def _scene(seed: int, plans: list[Plan], losses: random.Random | None, drains_s: list[float]) -> list[Heard]:
    fleet = LossyFleet(_synthesizer(seed), chance=random.Random(seed), resume_s=WITHIN_S, starts_per_s=1000)
    async with fleet:
        connected = asyncio.Barrier(len(plans) + (losses is not None))
        losing = None if losses is None else asyncio.create_task(lose(fleet, losses, connected))
        heard = await asyncio.gather(*(_live(fleet, each, number, connected) for number, each in enumerate(plans)))
        if losing is not None:
            losing.cancel()
            await asyncio.gather(losing, return_exceptions=True)
    drains_s += fleet.drains_s
    return [one for each in heard for one in each]


async def _live(fleet: LossyFleet, what: Plan, number: int, connected: asyncio.Barrier) -> list[Heard]:
    async with fleet.client(f"peer{number}", latency_s=what.latency_s) as session:
        await connected.wait()
        return list(await asyncio.gather(*(speak(session, what, each) for each in range(len(what.utterances)))))


async def lose(fleet: LossyFleet, chance: random.Random, connected: asyncio.Barrier) -> None:
    """Kills and drains gateways, several at once too, cuts connections and loses engines."""
    await connected.wait()
    for _ in range(chance.randint(1, 4)):
        await asyncio.sleep(chance.choice([chance.uniform(0, 0.1), chance.uniform(0, 1), chance.uniform(0, 4)]))
        restart_s, number = chance.choice([0.0, 0.5, 3.0]), chance.randrange(3)
        match chance.choice(["kill", "kill", "drain", "drain", "cut", "engine"]):
            case "kill":
                fleet.kill(number, chance.choice(LEARNS_S), restart_s=restart_s)
            case "drain":
                fleet.drain(number, restart_s=restart_s)
            case "cut":
                fleet.cut(chance.choice(LEARNS_S), chance.choice(LEARNS_S))
            case "engine":
                await asyncio.sleep(1)  # a start without an engine is refused
                fleet.lose_engine(number, restart_s=restart_s)
