"""Open-loop load in phases: arrivals follow their schedule, however slowly the gateway answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

from .expected_audio import ReceivedUtterance, all_ended
from .listeners import TEXTS, speech_text
from .raw_websocket import RawClient

RETRY_S = 0.05
"""Pause of a client that was refused."""


@dataclass(frozen=True)
class Phase:
    """`seconds` of Poisson arrivals at `per_s`."""

    seconds: float
    per_s: float


@dataclass
class OfferedLoad:
    """Every utterance that was asked for, in order. Times are seconds since the first phase began."""

    began_s: float
    utterances: list[ReceivedUtterance]
    phases: list[Phase]

    def at_s(self, utterance: ReceivedUtterance) -> float:
        return utterance.asked_s - self.began_s

    @property
    def bounds_s(self) -> list[float]:
        """Where the phases begin, and the end of the last."""
        bounds = [0.0]
        for phase in self.phases:
            bounds.append(bounds[-1] + phase.seconds)
        return bounds

    def within(self, begin_s: float, end_s: float) -> list[ReceivedUtterance]:
        return [one for one in self.utterances if begin_s <= self.at_s(one) < end_s]


async def offer_load(
    connect: Callable[[], Awaitable[RawClient]],
    phases: list[Phase],
    speech_s: float,
    seed: int,
    clients: list[RawClient],
) -> OfferedLoad:
    """Ask for an utterance at each arrival, on a socket that is free or new; `asked_s` is the time it was due."""
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    load = OfferedLoad(loop.time(), [], phases)
    free = list(clients)
    for phase, (begin_s, end_s) in zip(phases, pairwise(load.bounds_s), strict=True):
        at_s = load.began_s + begin_s
        while (at_s := at_s + chance.expovariate(phase.per_s)) < load.began_s + end_s:
            await asyncio.sleep(at_s - loop.time())
            client = free.pop() if free else await connect()
            number = len(load.utterances)
            received = client.say(speech_text(speech_s, number % TEXTS), name=f"u{number}", asked_s=at_s)
            received.over.add_done_callback(lambda _, client=client: free.append(client))
            load.utterances.append(received)
    await all_ended(load.utterances)
    return load


async def saturated_rate_per_s(clients: list[RawClient], speech_s: float, seconds: float) -> float:
    """Utterances finished per second when requests always wait: each client asks again as soon as it is answered."""
    loop = asyncio.get_running_loop()
    done_s: list[float] = []
    end_s = loop.time() + seconds

    async def ask_repeatedly(client: RawClient, number: int) -> None:
        turn = 0
        while loop.time() < end_s:
            received = client.say(speech_text(speech_s, number % TEXTS), name=f"s{turn}")
            turn += 1
            if await received.ended() == "done":
                done_s.append(loop.time())
            else:
                await asyncio.sleep(RETRY_S)

    await asyncio.gather(*(ask_repeatedly(client, number) for number, client in enumerate(clients)))
    # The load builds up in the first third and ebbs away after the end.
    steady = [at_s for at_s in done_s if end_s - seconds * 2 / 3 <= at_s < end_s]
    return len(steady) / (seconds * 2 / 3)
