"""Counts utterances of one to three words that a voice does not end itself: `python -m eval.short_texts URL VOICE...`.

Speaks every line of `prompts/short.txt` with two seeds through a gateway that runs. A guard cuts what the talker does
not end, and it is noise behind the last word.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence

from voxgate.client import Client, Done

from .plan import FOLDER

SEEDS = (2000, 2001)
AT_ONCE = 4


def short_texts() -> list[str]:
    """The lines of `prompts/short.txt` that are no comments."""
    lines = (FOLDER / "short.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


async def count_ends(url: str, voice: str, texts: Sequence[str]) -> Counter[str]:
    """Utterances by the reason of their end: "end", or "length" for those that a guard cut."""
    free = asyncio.Semaphore(AT_ONCE)

    async def reason(text: str, seed: int) -> str:
        # A session of its own: the starts of one session are limited.
        async with free, Client(url) as client, client.utterance(voice=voice, seed=seed, pacing="none") as utterance:
            await utterance.send(text)
            await utterance.end()
            return [event.reason async for event in utterance.events() if isinstance(event, Done)][-1]

    return Counter(await asyncio.gather(*(reason(text, seed) for text in texts for seed in SEEDS)))


async def main(url: str, voices: Sequence[str]) -> None:
    """Prints the count of each voice."""
    for voice in voices:
        ends = await count_ends(url, voice, short_texts())
        print(f"{voice}: {ends['length']} of {ends.total()} cut")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
