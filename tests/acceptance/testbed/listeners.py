"""Many listeners at the pace of speech: the load behind the rows on capacity and on who disturbs whom."""
# TODO-DOC What one client's misbehaviour costs the others: the same chorus with and without it.

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from ..scorecard.card import Trial
from .expected_audio import ReceivedUtterance, mismatches, percentile
from .gateway_process import GatewayProcess
from .raw_websocket import RawClient, clients

CHARACTERS_PER_S = 25
"""The tone talker speaks two characters a frame."""
TEXTS = 16
"""Different texts in a chorus; each is computed once for the oracle."""
SPREAD_S = 2.0
"""The listeners begin within this time."""
WORDS = ("the", "weather", "is", "fine", "today", "and", "nobody", "knows", "how", "long", "that", "will", "last")
UNLIMITED = {"starts_per_s": 10_000, "interrupts_per_s": 10_000, "messages_per_s": 100_000}
"""Settings for one client that stands for many."""


@cache  # made in the midst of a measurement it would delay what is measured
def text_of(seconds: float, number: int = 0) -> str:
    """A text that the tone talker speaks in about `seconds`."""
    chance, text = random.Random(number), ""
    while len(text) < seconds * CHARACTERS_PER_S:
        text += chance.choice(WORDS) + " "
    return text[: max(1, int(seconds * CHARACTERS_PER_S))]


@dataclass
class ListenerResults:
    """What the listeners heard."""

    heard: list[ReceivedUtterance]

    @property
    def gap_p99_ms(self) -> float:
        """Between messages, the burst at the start left out."""
        return percentile([gap for one in self.heard for gap in one.gaps_ms[6:]], 99)

    def underruns(self, buffer_ms: float = 200) -> int:
        return sum(one.playback.underruns(buffer_ms) for one in self.heard)

    @property
    def mismatches(self) -> list[str]:
        return mismatches(self.heard)

    @property
    def unfinished(self) -> int:
        return sum(one.outcome != "done" for one in self.heard)


async def chorus(
    port: int, count: int, seconds: float, *, codec: str = "pcm", listeners: list[RawClient] | None = None
) -> ListenerResults:
    """`count` listeners hear `seconds` of speech each, begun at moments spread over two seconds."""
    listeners = listeners or await clients(port, count)
    heard = await asyncio.gather(*(_listen(client, n, count, seconds, codec) for n, client in enumerate(listeners)))
    await asyncio.gather(*(client.close() for client in listeners))
    return ListenerResults(list(heard))


async def _listen(client: RawClient, number: int, count: int, seconds: float, codec: str) -> ReceivedUtterance:
    await asyncio.sleep(SPREAD_S * number / count)
    heard = client.say(text_of(seconds, number % TEXTS), codec=codec)
    await heard.ended(2 * seconds + 30)
    return heard


T = TypeVar("T")

OTHERS = 100


async def disturbed(
    trial: Trial, served: GatewayProcess, seconds: float, disturb: Callable[[], Awaitable[T]], ratio: float
) -> T:
    """Judge a chorus's gap p99 while `disturb` runs against that without; returns what `disturb` does."""
    others = trial.size(OTHERS, least=5)
    await chorus(served.port, max(1, others // 10), 2)
    alone = await chorus(served.port, others, seconds)
    disturbing = asyncio.ensure_future(disturb())
    beside = await chorus(served.port, others, seconds)
    found = await disturbing
    trial.note("others", others)
    trial.note("gap p99 alone ms", alone.gap_p99_ms)
    trial.most("gap p99 ratio", beside.gap_p99_ms / alone.gap_p99_ms, ratio, timed=True)
    trial.most("underruns of the others", beside.underruns(), 0, timed=True)
    trial.equal("mismatches", len(beside.mismatches), 0)
    trial.equal("unfinished", beside.unfinished, 0)
    return found
