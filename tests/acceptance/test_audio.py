"""Audio of many interleaved utterances, compared sample by sample with the audio of each one alone."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, WORDS
from .testbed.measuring import Figures, nightly
from .testbed.raw_websocket import RawClient, connect_many

SOCKETS = 48
UTTERANCES_PER_SOCKET = 2
"""Utterances under way at the same time on each socket."""


@pytest.mark.parametrize("utterances", [200, nightly(100_000)])
async def test_interleaved_utterances_equal_offline_audio(
    utterances: int, scaled: Callable[..., int], figures: Figures
) -> None:
    """No sample is lost, repeated, out of order or of another utterance, in PCM and in Opus."""
    texts = [" ".join(random.Random(n).choices(WORDS, k=2 + n % 3)) + "." for n in range(40)]
    outcomes: Counter[str] = Counter()
    count = scaled(utterances)
    numbers = iter(range(count))
    # An utterance can be asked for before the slot of the one before it was given back; it waits in the queue then.
    places = UTTERANCES_PER_SOCKET * SOCKETS
    async with tone_gateway(slots=places, queue_length=places, **UNLIMITED) as gateway:
        clients = await connect_many(gateway.port, SOCKETS)
        lines = (
            _speak(client, line, numbers, texts, outcomes)
            for client in clients
            for line in range(UTTERANCES_PER_SOCKET)
        )
        await asyncio.gather(*lines)
        figures.note("utterances", outcomes.total())
        assert outcomes == {"done": count}
        assert gateway.log_errors == []


async def _speak(
    client: RawClient, line: int, numbers: Iterator[int], texts: list[str], outcomes: Counter[str]
) -> None:
    for number in numbers:
        codec = "opus" if number % 4 == 0 else "pcm"
        received = client.say(
            texts[number % len(texts)], name=f"{line}.{number}", seed=number % 3, codec=codec, pacing="none"
        )
        outcome = await received.ended()
        outcomes[received.mismatch or outcome] += 1
