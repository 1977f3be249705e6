"""The words of a speech as they were sent: a conversation's history holds the text, not its spoken form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voxgate.client.errors import ClientError, SpeechError
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
        self._held: list[SentWord] = []

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

    def hold(self, spoken: Iterable[Word]) -> None:
        """Keeps `words` for `take`: the gateway sends their times up to seconds before their audio."""
        self._held.extend(self.words(spoken))

    def take(self, audio_s: float) -> list[SentWord]:
        """Removes and returns the words that begin within the first `audio_s` seconds."""
        due = [word for word in self._held if word.start_s < audio_s]
        del self._held[: len(due)]
        return due

    def is_silent(self, failure: ClientError) -> bool:
        """Whether it failed as it has nothing to say, such as "..."; text that the voice cannot speak has letters."""
        empty = isinstance(failure, SpeechError) and failure.code == "empty_text"
        return empty and not any(map(str.isalnum, self._text))
