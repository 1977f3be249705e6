"""The words of a speech as they were sent: a conversation's history holds the text, not its spoken form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voxgate.client.events import Word


@dataclass(frozen=True, slots=True)
class SentWord:
    """A word with its punctuation, from the text as sent, and its time in the audio in seconds."""

    text: str
    start_s: float
    end_s: float


class SentText:
    """The text of one utterance, as far as it was sent."""

    def __init__(self) -> None:
        self._text = ""
        self._reported = 0
        """Characters in words that were yielded, and before them."""

    def append(self, fragment: str) -> None:
        """Adds a fragment that was sent."""
        self._text += fragment

    def words(self, spoken: Iterable[Word]) -> Iterator[SentWord]:
        """Yields the written words behind `spoken`, each once, with the time of the first word it is spoken as.

        "12%" is spoken as two words, and "well-known" too.
        """
        for word in spoken:
            start, end = word.start, word.end
            while end < len(self._text) and not self._text[end].isspace():
                end += 1
            while start and not self._text[start - 1].isspace():
                start -= 1
            if start >= self._reported and start < end:
                self._reported = end
                yield SentWord(self._text[start:end], word.start_ms / 1000, word.end_ms / 1000)
