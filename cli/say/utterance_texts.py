"""Divides text that arrives in fragments into the texts of utterances, none longer than the gateway's limit."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Iterable

LAST_PART = 8
"""Utterances are divided within the last 1/LAST_PART of the limit: about five sentences of the usual 4,096
characters."""
CONTEXT_CHARACTERS = 32
"""Characters of the utterance so far that are kept, to find the end of a sentence between two fragments."""
MAX_JSON_BYTES = 12
"""Length of one character in a message, at most: two escapes of UTF-16."""
MESSAGE_OVERHEAD_BYTES = 256
"""Space in a message for its other fields."""
ZERO_WIDTH_JOINER = "\u200d"

_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]*(?=\s)|[。！？]["'”’」』）]*""")  # noqa: RUF001 - fullwidth marks
_BLANKS = re.compile(r"\s*")


class UtteranceTexts:
    """The texts of consecutive utterances, each at most `max_characters` long.

    Text is passed on as it arrives. Joined, the texts are the fragments; only blanks that would be an utterance of
    their own, or most of one, are left out.
    """

    def __init__(
        self,
        fragments: Iterable[str] | AsyncIterable[str],
        max_characters: int | None = None,
        max_message_bytes: int | None = None,
    ) -> None:
        """`max_message_bytes` limits the fragments that are passed on. Without limits nothing is divided."""
        self._source = aiter(fragments) if isinstance(fragments, AsyncIterable) else _as_async(fragments)
        self._max_characters = max_characters
        self._max_fragment = max_message_bytes and max(
            1, (max_message_bytes - MESSAGE_OVERHEAD_BYTES) // MAX_JSON_BYTES
        )
        self._reading: asyncio.Task[str | None] | None = None
        self._ended = False
        self._characters = 0
        self._before = ""
        self.waiting = ""
        """Text that was read and belongs to an utterance that has not begun."""

    async def more(self) -> bool:
        """Waits for the text of another utterance; false when there is none.

        Raises the errors of the fragments. Cancelling it loses no text.
        """
        while not self.waiting or self.waiting.isspace():
            if self._max_characters is not None and len(self.waiting) > self._max_characters:
                self.waiting = ""
            if not await self._read():
                return False
        if self._max_characters is not None:
            blanks = _blanks_end(self.waiting, 0)
            if blanks > self._max_characters // 2:  # otherwise the utterance might have nothing but blanks
                self.waiting = self.waiting[blanks:]
        return True

    async def fragments(self) -> AsyncIterator[str]:
        """Yields the text of the next utterance as it arrives, until its end or that of all text.

        Raises the errors of the fragments. Cancelling it loses no text that was not yielded.
        """
        self._characters, self._before = 0, ""
        if not await self.more() and not self.waiting:
            return
        while self.waiting or await self._read():
            end = self._end_of_utterance()
            text = self.waiting[:end]
            self.waiting = self.waiting[len(text) :]
            self._characters += len(text)
            self._before = (self._before + text)[-CONTEXT_CHARACTERS:]
            step = self._max_fragment or max(1, len(text))
            for begin in range(0, len(text), step):
                yield text[begin : begin + step]
            if end is not None:
                return

    async def close(self) -> None:
        """Stops reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _end_of_utterance(self) -> int | None:
        """Returns how much of the text that waits ends the utterance; None when all of it belongs to the utterance."""
        if self._max_characters is None:
            return None
        room = self._max_characters - self._characters
        last_part = max(1, self._max_characters // LAST_PART)
        if len(self.waiting) > room:
            return divide(self._before, self.waiting, max(0 if self._characters else 1, room - last_part), room)
        # Text that arrives word by word leaves no choice at the limit: it is divided at a sentence that ends before it.
        ends = sentence_ends(self._before, self.waiting) if room <= last_part else []
        return max((end for end in ends if end < len(self.waiting)), default=None)

    async def _read(self) -> bool:
        """Waits for the next fragment; false at the end of all text. Cancelling it loses none."""
        if self._ended:
            return False
        if self._reading is None:
            self._reading = asyncio.create_task(self._next(), name="text")
        fragment = await asyncio.shield(self._reading)
        self._reading = None
        if fragment is None:
            self._ended = True
            return False
        self.waiting += fragment
        return True

    async def _next(self) -> str | None:
        return await anext(self._source, None)


def divide(before: str, text: str, least: int, most: int) -> int:
    """Returns where to divide `text`, which is longer than `most`, behind `least` to `most` characters.

    Behind the last sentence that ends there, else at the last white space, else where no character is cut: a letter
    stays with its accents. `before` is the text in front.
    """
    if ends := [end for end in sentence_ends(before, text[: most + 1]) if least <= end <= most]:
        return ends[-1]
    places = range(most, least - 1, -1)
    around = [(place, text[place - 1] if place else before[-1:], text[place]) for place in places]
    for place, left, right in around:
        if left.isspace() or right.isspace():
            return place
    return next((place for place, left, right in around if not _is_one_character(left, right)), most)


def sentence_ends(before: str, text: str) -> list[int]:
    """Returns the places in `text`, behind `before`, at which sentences end, with the white space that follows."""
    joined = before + text
    ends = (_blanks_end(joined, match.end()) - len(before) for match in _SENTENCE_END.finditer(joined))
    return [end for end in ends if end >= 0]


def _blanks_end(text: str, begin: int) -> int:
    match = _BLANKS.match(text, begin)
    return begin if match is None else match.end()


def _is_one_character(left: str, right: str) -> bool:
    """Whether two code points are parts of one character."""
    return ZERO_WIDTH_JOINER in (left, right) or unicodedata.category(right)[0] == "M" or _is_skin_tone(right)


def _is_skin_tone(code_point: str) -> bool:
    return "\U0001f3fb" <= code_point <= "\U0001f3ff"


async def _as_async(fragments: Iterable[str]) -> AsyncIterator[str]:
    for fragment in fragments:
        yield fragment
