from __future__ import annotations

import asyncio
import random
from collections import Counter

from ..card import Trial, row
from ..chorus import UNLIMITED, WORDS
from ..gateways import tone_gateway
from ..wire import Client, clients

SOCKETS = 48
AT_ONCE = 2
"""Utterances at once on each socket."""


@row(
    "S6",
    "lost, duplicated, reordered audio; two utterances at once on every socket, PCM and Opus",
    "0 in 10^5 utterances",
    nightly_s=110,
)
async def nothing_lost(trial: Trial) -> None:
    utterances = trial.size(100_000)
    texts = [" ".join(random.Random(n).choices(WORDS, k=2 + n % 3)) + "." for n in range(40)]
    counts: Counter[str] = Counter()
    todo = iter(range(utterances))
    # The next utterance of a line can be there before the slot of the last was given back: it waits then.
    async with tone_gateway(slots=AT_ONCE * SOCKETS, queue_length=AT_ONCE * SOCKETS, **UNLIMITED) as served:
        listeners = await clients(served.port, SOCKETS)
        lines = (_speak(client, line, todo, texts, counts) for client in listeners for line in range(AT_ONCE))
        await asyncio.gather(*lines)
        trial.note("utterances", counts.total())
        trial.equal("done as offline", counts["done"], utterances)
        for what, count in counts.items():
            if what != "done":
                trial.missed.append(f"{what}: {count}")
        trial.equal("complaints", len(served.complaints), 0)


async def _speak(client: Client, line: int, todo, texts: list[str], counts: Counter[str]) -> None:
    for number in todo:
        codec = "opus" if number % 4 == 0 else "pcm"
        heard = client.say(
            texts[number % len(texts)], name=f"{line}.{number}", seed=number % 3, codec=codec, pacing="none"
        )
        outcome = await heard.ended(60)
        # Audio that came after the end would be noted only now.
        counts[heard.mismatch or outcome] += 1
