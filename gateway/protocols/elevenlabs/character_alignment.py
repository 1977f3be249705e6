"""Computes ElevenLabs' times of characters from the times of words."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ...messages.server import WordFields

BLANK = " "
"""Replaces every white-space character: clients split words at this one only."""


class CharacterTimes(NamedTuple):
    """A run of text: its characters, the time at which each begins, and how long it lasts, in milliseconds."""

    characters: list[str]
    starts_ms: list[int]
    durations_ms: list[int]


class CharacterAlignment:
    """The character times of one utterance, in runs.

    `absolute` times count from the beginning of the utterance, others from the end of the previous run. All runs
    joined are the text as it is spoken, without markup, with white space replaced by BLANK and one BLANK at the end.
    The characters of a word share its time evenly; blanks between two words share the time between the words.
    """

    def __init__(self, *, absolute: bool) -> None:
        self._absolute = absolute
        self._text = ""
        self._words: deque[WordFields] = deque()
        """Words that no run contains yet."""
        self._taken = 0
        """Number of characters of the text that runs contain, or that are markup."""
        self._last = ""
        """The last character of all runs."""
        self._end_ms = 0
        """End of the last of these characters."""
        self._run_start_ms = 0

    def add_text(self, fragment: str) -> None:
        """Appends text that was sent to the talker."""
        self._text += fragment

    def retract(self, fragment: str) -> None:
        """Removes the last fragment, which the session refused."""
        self._text = self._text.removesuffix(fragment)

    def add_words(self, words: Iterable[WordFields]) -> None:
        """Adds words with known times, in order."""
        self._words.extend(words)

    def take_until(self, end_ms: float) -> CharacterTimes | None:
        """Takes the words that begin before `end_ms` and the text between them; None when there are none."""
        run = CharacterTimes([], [], [])
        while self._words and self._words[0].start_ms < end_ms:
            self._append_word(self._words.popleft(), run)
        return self._finish_run(run)

    def take_rest(self) -> CharacterTimes | None:
        """Takes all words that are left, and the white space behind them. None when none is left."""
        run = CharacterTimes([], [], [])
        while self._words:
            self._append_word(self._words.popleft(), run)
        rest = self._text[self._taken :]
        self._taken = len(self._text)
        # Every word has a time at the end: what is left besides white space is markup.
        self._append(rest if rest.isspace() else "", self._end_ms, run)
        if self._last and self._last != BLANK:
            self._append(BLANK, self._end_ms, run)
        return self._finish_run(run)

    def _append_word(self, word: WordFields, run: CharacterTimes) -> None:
        gap = self._text[self._taken : word.start]
        if gap and not gap.isspace():
            gap = ""  # markup
        if not gap and self._last not in ("", BLANK) and not _is_wide(self._last) and not _is_wide(word.text[0]):
            gap = BLANK
        self._append(gap, word.start_ms, run)
        self._append(word.text, word.end_ms, run)
        self._taken = max(self._taken, word.end)
        blanks_end = self._taken
        while blanks_end < len(self._text) and self._text[blanks_end].isspace():
            blanks_end += 1
        self._append(self._text[self._taken : blanks_end], self._end_ms, run)
        self._taken = blanks_end

    def _append(self, text: str, end_ms: int, run: CharacterTimes) -> None:
        """Spreads `text` evenly over the time from the end of the last character to `end_ms`."""
        start_ms, self._end_ms = self._end_ms, max(self._end_ms, end_ms)
        if not text:
            return
        edges = [start_ms + (self._end_ms - start_ms) * i // len(text) for i in range(len(text) + 1)]
        run.characters.extend(BLANK if character.isspace() else character for character in text)
        self._last = run.characters[-1]
        run.starts_ms.extend(edges[:-1])
        run.durations_ms.extend(b - a for a, b in pairwise(edges))

    def _finish_run(self, run: CharacterTimes) -> CharacterTimes | None:
        if not run.characters:
            return None
        run_start_ms, self._run_start_ms = self._run_start_ms, self._end_ms
        return run if self._absolute else run._replace(starts_ms=[start - run_start_ms for start in run.starts_ms])


def _is_wide(character: str) -> bool:
    """Whether it belongs to a script without blanks between words."""
    return unicodedata.east_asian_width(character) in ("W", "F")
