"""Open-loop arrivals in phases, and what became of them second by second."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from itertools import pairwise

from .expected_audio import ReceivedUtterance, all_ended
from .listeners import TEXTS, text_of
from .raw_websocket import RawClient, clients


@dataclass(frozen=True)
class Phase:
    """`seconds` of Poisson arrivals at `per_s`."""

    seconds: float
    per_s: float


@dataclass
class OfferedLoad:
    """Everything asked for, in order; times are seconds since the first phase began."""

    began_s: float
    heard: list[ReceivedUtterance]
    phases: list[Phase]

    def at_s(self, heard: ReceivedUtterance) -> float:
        return heard.asked_s - self.began_s

    @property
    def bounds_s(self) -> list[float]:
        """Where phases begin, and the end of the last."""
        bounds = [0.0]
        for phase in self.phases:
            bounds.append(bounds[-1] + phase.seconds)
        return bounds

    def within(self, begin_s: float, end_s: float) -> list[ReceivedUtterance]:
        return [one for one in self.heard if begin_s <= self.at_s(one) < end_s]


async def arrive(port: int, phases: list[Phase], speech_s: float, seed: int, listeners: list[RawClient]) -> OfferedLoad:
    """Ask for an utterance at each arrival, on a socket that is free; the intended time is the clock."""
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    arrivals = OfferedLoad(began_s, [], phases)
    free = list(listeners)
    for phase, (begin_s, end_s) in zip(phases, pairwise(arrivals.bounds_s), strict=True):
        at_s = began_s + begin_s
        while (at_s := at_s + chance.expovariate(phase.per_s)) < began_s + end_s:
            await asyncio.sleep(at_s - loop.time())
            client = free.pop() if free else (await clients(port, 1))[0]
            number = len(arrivals.heard)
            heard = client.say(text_of(speech_s, number % TEXTS), name=f"u{number}", asked_s=at_s)
            heard.over.add_done_callback(lambda _, client=client: free.append(client))
            arrivals.heard.append(heard)
    await all_ended(arrivals.heard, 60)
    return arrivals


async def saturated_per_s(listeners: list[RawClient], speech_s: float, seconds: float) -> float:
    """Utterances finished a second when somebody always waits: each client asks again as soon as it is answered."""
    loop = asyncio.get_running_loop()
    done: list[float] = []
    end_s = loop.time() + seconds

    async def go_on(client: RawClient, number: int) -> None:
        turn = 0
        while loop.time() < end_s:
            heard = client.say(text_of(speech_s, number % TEXTS), name=f"s{turn}")
            turn += 1
            if await heard.ended(60) == "done":
                done.append(loop.time())
            else:
                await asyncio.sleep(0.05)

    await asyncio.gather(*(go_on(client, number) for number, client in enumerate(listeners)))
    # The first third fills up, and what ends after the end is not in a steady state either.
    steady = [at_s for at_s in done if end_s - seconds * 2 / 3 <= at_s < end_s]
    return len(steady) / (seconds * 2 / 3)
