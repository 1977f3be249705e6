"""What is said under load, and how fast it is written."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence

SENTENCES = (
    "The bakery on the corner sells fresh bread every morning, and the coffee is very good. ",
    "I found three restaurants near your hotel that are still open, and one of them has a garden. ",
    "Please remember to water the plants while I am away, and lock the door when you leave. ",
)


def passage(sentences: int, choice: random.Random) -> str:
    """A text of so many sentences, another one for each state of `choice`."""
    return "".join(choice.choice(SENTENCES) for _ in range(sentences))


def fragments(text: str) -> Sequence[str]:
    """`text` in the pieces a language model writes: a word with the space after it."""
    return re.findall(r"\S+\s*", text)


async def paced(pieces: Sequence[str], words_per_s: float) -> AsyncIterator[str]:
    """`pieces` as they are written; all at once when `words_per_s` is 0. A slow reader does not slow the writer."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for index, piece in enumerate(pieces):
        if words_per_s:
            await asyncio.sleep(max(0.0, began_s + index / words_per_s - loop.time()))
        yield piece
