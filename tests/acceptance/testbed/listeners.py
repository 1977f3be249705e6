"""Many listeners at the pace of speech, alone or with other clients that misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from fakes.waiting import DEADLINE_S

from .expected_audio import ReceivedUtterance, mismatches, percentile
from .gateway_process import GatewayProcess
from .measuring import Figures
from .raw_websocket import RawClient, connect_many

CHARACTERS_PER_S = 25
"""The tone synthesizer speaks two characters in a frame of 80 ms."""
TEXTS = 16
"""Different texts among the listeners; the expected audio of each is computed once."""
SPREAD_S = 2.0
"""The listeners start within this time."""
WORDS = ("the", "weather", "is", "fine", "today", "and", "will", "stay", "so", "until", "the", "end", "of", "May")
UNLIMITED = {"starts_per_s": 10_000, "interrupts_per_s": 10_000, "messages_per_s": 100_000}
"""Settings for one client address that stands for many."""

T = TypeVar("T")


@cache  # computed during a measurement it would delay what is measured
def speech_text(seconds: float, number: int = 0) -> str:
    """A text that the tone synthesizer speaks in about `seconds`."""
    chance, text = random.Random(number), ""
    while len(text) < seconds * CHARACTERS_PER_S:
        text += chance.choice(WORDS) + " "
    return text[: max(1, int(seconds * CHARACTERS_PER_S))]


@dataclass
class ListenerResults:
    """What the listeners received."""

    utterances: list[ReceivedUtterance]

    @property
    def gap_p99_ms(self) -> float:
        """Time between messages, p99 over all listeners."""
        return percentile([gap for one in self.utterances for gap in one.gaps_ms], 99)

    def underruns(self, buffer_ms: float = 200) -> int:
        return sum(one.playback.underruns(buffer_ms) for one in self.utterances)

    @property
    def mismatches(self) -> list[str]:
        return mismatches(self.utterances)

    @property
    def unfinished(self) -> list[str]:
        """Outcomes of the utterances that did not end with "done"."""
        return [one.outcome for one in self.utterances if one.outcome != "done"]


async def run_listeners(
    port: int, count: int, seconds: float, *, codec: str = "pcm", clients: list[RawClient] | None = None
) -> ListenerResults:
    """Let `count` listeners receive `seconds` of speech each; they start at moments spread over two seconds."""
    clients = clients or await connect_many(port, count)
    received = await asyncio.gather(*(_listen(client, n, count, seconds, codec) for n, client in enumerate(clients)))
    await asyncio.gather(*(client.close() for client in clients))
    return ListenerResults(list(received))


async def _listen(client: RawClient, number: int, count: int, seconds: float, codec: str) -> ReceivedUtterance:
    await asyncio.sleep(SPREAD_S * number / count)
    received = client.say(speech_text(seconds, number % TEXTS), codec=codec)
    await received.ended(2 * seconds + DEADLINE_S)
    return received


async def compare_with_disturbance(
    figures: Figures,
    gateway: GatewayProcess,
    listeners: int,
    seconds: float,
    disturb: Callable[[], Awaitable[T]],
    max_ratio: float,
) -> T:
    """Check that `disturb` neither damages nor delays the speech of other listeners. Returns the result of `disturb`.

    `max_ratio`: largest p99 gap of the listeners meanwhile, relative to that without the disturbance.
    """
    await run_listeners(gateway.port, max(1, listeners // 10), 2)
    alone = await run_listeners(gateway.port, listeners, seconds)
    disturbing = asyncio.ensure_future(disturb())
    disturbed = await run_listeners(gateway.port, listeners, seconds)
    result = await disturbing
    assert disturbed.mismatches == []
    assert disturbed.unfinished == []
    figures.note("listeners", listeners)
    figures.note("gap p99 alone ms", alone.gap_p99_ms)
    figures.time_at_most("gap p99 ratio", disturbed.gap_p99_ms / alone.gap_p99_ms, max_ratio)
    figures.time_at_most("underruns of the listeners", disturbed.underruns(), 0)
    return result
