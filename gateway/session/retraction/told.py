"""Which words and mouth shapes a client has of those that a speech reports, which may begin again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from voxgate.pipeline.interface import VisemeTime, WordTime

from ...messages.server import VisemesMessage, WordsMessage
from ..text.text_offsets import TextOffsets

Item = TypeVar("Item")


class Told:
    """Counts the items of one kind, which speeches report in order. Synchronous."""

    def __init__(self) -> None:
        self._told = 0
        """Items that the client has, or had before a retraction."""
        self._reported = 0
        """Items that the present speech has reported."""
        self._before = math.inf
        """Of those that the client had, only items that begin before this still count."""

    def restore(self, count: int) -> None:
        """The client has the first `count` items, from another gateway."""
        self._told = count

    @property
    def any(self) -> bool:
        """Whether the client has any."""
        return self._told > 0

    def rewind(self, before: float) -> None:
        """Another speech reports all items again; the client has dropped those that begin at `before` or later."""
        self._reported, self._before = 0, min(self._before, before)

    def unknown(self, items: Sequence[Item], begin_of: Callable[[Item], int]) -> list[Item]:
        """Returns those of the next items that the client has not got, and counts them as told."""
        found = []
        for item in items:
            self._reported += 1
            if self._reported > self._told or begin_of(item) >= self._before:
                found.append(item)
                self._told, self._before = self._reported, math.inf
        return found


class TimesInOrder:
    """Keeps word times in order where another speech finds a word a little earlier than the one before was told."""

    def __init__(self) -> None:
        self._told: list[tuple[int, int]] = []
        """Offset and end in ms of each word that was told."""

    def restore(self, end_ms: int) -> None:
        """The last word that the client has from another gateway ends at `end_ms`."""
        self._told = [(-1, end_ms)]

    def rewind(self, before: float, cut_ms: float) -> None:
        """The client has dropped the words that begin at offset `before` or later; others end at `cut_ms` at most."""
        while self._told and self._told[-1][0] >= before:
            self._told.pop()
        if self._told and cut_ms < self._told[-1][1]:
            self._told[-1] = self._told[-1][0], int(cut_ms)

    def place(self, word: WordTime) -> WordTime:
        """Returns `word`, which is told next, not before the end of the word before."""
        least_ms = self._told[-1][1] if self._told else 0
        if word.start_ms < least_ms:
            word = replace(word, start_ms=least_ms, end_ms=max(word.end_ms, least_ms))
        self._told.append((word.start, word.end_ms))
        return word


class ShapesInOrder:
    """Leaves a mouth shape out that was told already, where another speech finds its begin a little later."""

    def __init__(self) -> None:
        self._told: list[VisemeTime] = []

    def rewind(self, before_ms: float) -> None:
        """The client has dropped the shapes that begin at `before_ms` or later."""
        while self._told and self._told[-1].start_ms >= before_ms:
            self._told.pop()

    def place(self, shapes: Sequence[VisemeTime]) -> list[VisemeTime]:
        """Returns those of the next shapes that differ from the one before."""
        placed = []
        for shape in shapes:
            if not self._told or shape.viseme != self._told[-1].viseme:
                self._told.append(shape)
                placed.append(shape)
        return placed


class ToldTimes:
    """The words and mouth shapes that the client of one utterance was told. Synchronous."""

    def __init__(self, utterance: str) -> None:
        self._utterance = utterance
        self._words, self._visemes = Told(), Told()
        self._word_times, self._shapes = TimesInOrder(), ShapesInOrder()

    def restore(self, words: int, words_end_ms: int, visemes: int) -> None:
        """The client has the first so many words, which end at `words_end_ms`, and shapes, from another gateway."""
        self._words.restore(words)
        self._word_times.restore(words_end_ms)
        self._visemes.restore(visemes)

    @property
    def anything(self) -> bool:
        """Whether the client has any words or shapes."""
        return self._words.any or self._visemes.any

    def rewind(self, offset: int, cut_ms: float) -> None:
        """Another speech reports all again; the client has dropped words from `offset` on, shapes from `cut_ms` on."""
        self._words.rewind(offset)
        self._word_times.rewind(offset, cut_ms)
        self._visemes.rewind(cut_ms)
        self._shapes.rewind(cut_ms)

    def words_message(self, words: Sequence[WordTime], offsets: TextOffsets) -> WordsMessage | None:
        """Returns the message for words whose times are known now; None where the client has all of them.

        `offsets`: converts their places in the text to the client's units.
        """
        unknown = self._words.unknown(words, lambda word: word.start)
        timed = map(self._word_times.place, unknown)
        placed = [replace(word, start=offsets.of(word.start), end=offsets.of(word.end)) for word in timed]
        return WordsMessage.of(self._utterance, placed) if placed else None

    def visemes_message(self, visemes: Sequence[VisemeTime]) -> VisemesMessage | None:
        """Returns the message for mouth shapes that are known now; None where the client has all of them."""
        unknown = self._visemes.unknown(visemes, lambda viseme: viseme.start_ms)
        placed = self._shapes.place(unknown)
        return VisemesMessage.of(self._utterance, placed) if placed else None
