"""Many listeners at the pace of speech: the load behind the rows on capacity and on who disturbs whom."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from functools import cache

from .oracle import Heard, mismatches, percentile
from .wire import Client, clients

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
class Chorus:
    """What the listeners heard."""

    heard: list[Heard]

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
    port: int, count: int, seconds: float, *, codec: str = "pcm", listeners: list[Client] | None = None
) -> Chorus:
    """`count` listeners hear `seconds` of speech each, begun at moments spread over two seconds."""
    listeners = listeners or await clients(port, count)
    heard = await asyncio.gather(*(_listen(client, n, count, seconds, codec) for n, client in enumerate(listeners)))
    await asyncio.gather(*(client.close() for client in listeners))
    return Chorus(list(heard))


async def _listen(client: Client, number: int, count: int, seconds: float, codec: str) -> Heard:
    await asyncio.sleep(SPREAD_S * number / count)
    heard = client.say(text_of(seconds, number % TEXTS), codec=codec)
    await heard.ended(2 * seconds + 30)
    return heard
