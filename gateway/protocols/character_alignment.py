"""Times of characters, as ElevenLabs tells them, from the times of words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ..messages import WordFields

BLANK = " "
"""What every white space becomes: clients end words at it, and at nothing else."""


class CharacterTimes(NamedTuple):
    """A run of text: each character with its beginning and its length, in milliseconds."""

    characters: list[str]
    starts_ms: list[int]
    durations_ms: list[int]


class CharacterAlignment:
    """One utterance's. `absolute` times count from its beginning; the others from the end of the run before.

    All runs joined are the text, with plain blanks and one at the end. The characters of a word share its time
    evenly; what stands between two words shares the time between them.
    """

    def __init__(self, *, absolute: bool) -> None:
        self._absolute = absolute
        self._text = ""
        self._waiting: deque[WordFields] = deque()
        self._given = 0
        """CharacterTimes of the text that were given out."""
        self._end_ms = 0
        """Where the last of them ended."""
        self._run_began_ms = 0

    def add_text(self, fragment: str) -> None:
        """What the talker was given."""
        self._text += fragment

    def retract(self, fragment: str) -> None:
        """The last fragment was refused after all."""
        self._text = self._text.removesuffix(fragment)

    def add_words(self, words: Iterable[WordFields]) -> None:
        """Words whose times are known now, in order."""
        self._waiting.extend(words)

    def until(self, end_ms: float) -> CharacterTimes | None:
        """The words that begin before `end_ms`, with what stands between them; None when there are none."""
        run = CharacterTimes([], [], [])
        while self._waiting and self._waiting[0].start_ms < end_ms:
            self._take(self._waiting.popleft(), run)
        return self._clocked(run)

    def rest(self) -> CharacterTimes | None:
        """All that is left; what has no time of its own gets the end. None when everything was given out."""
        run = CharacterTimes([], [], [])
        while self._waiting:
            self._take(self._waiting.popleft(), run)
        self._spread(self._text[self._given :], self._end_ms, run)
        self._given = len(self._text)
        if self._text and not self._text[-1].isspace():
            self._text += BLANK
            self._spread(BLANK, self._end_ms, run)
            self._given += 1
        return self._clocked(run)

    def _take(self, word: WordFields, run: CharacterTimes) -> None:
        self._spread(self._text[self._given : word.start], word.start_ms, run)
        self._spread(self._text[max(self._given, word.start) : word.end], word.end_ms, run)
        self._given = max(self._given, word.end)
        blanks = self._given
        while blanks < len(self._text) and self._text[blanks].isspace():
            blanks += 1
        self._spread(self._text[self._given : blanks], self._end_ms, run)
        self._given = blanks

    def _spread(self, text: str, end_ms: int, run: CharacterTimes) -> None:
        """Give `text` the time from where the last character ended to `end_ms`."""
        start_ms, end_ms = self._end_ms, max(self._end_ms, end_ms)
        edges = [start_ms + (end_ms - start_ms) * i // max(1, len(text)) for i in range(len(text) + 1)]
        run.characters.extend(BLANK if character.isspace() else character for character in text)
        run.starts_ms.extend(edges[:-1])
        run.durations_ms.extend(b - a for a, b in pairwise(edges))
        self._end_ms = end_ms

    def _clocked(self, run: CharacterTimes) -> CharacterTimes | None:
        if not run.characters:
            return None
        began_ms, self._run_began_ms = self._run_began_ms, self._end_ms
        return run if self._absolute else run._replace(starts_ms=[start - began_ms for start in run.starts_ms])
