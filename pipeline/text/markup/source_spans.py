"""Maps offsets in the text without markup to offsets in the text as the client sent it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace

from ...interface import WordTime


class SourceSpans:
    """The spans of the client's text that a plain text is made of, in order.

    A copied span has as many characters as the client's text; a replaced one, such as an alias, belongs as a whole to
    one span of it. What lies between two spans is markup.
    """

    def __init__(self) -> None:
        self._plain: list[int] = []
        """Offset in the plain text at which each span begins."""
        self._starts: list[int] = []
        self._ends: list[int | None] = []
        """End in the client's text of a replaced span; None for a copied one."""
        self.length = 0
        """Characters of the plain text."""
        self.read = 0
        """Characters of the client's text that were read."""

    def copy(self, length: int, start: int) -> None:
        """Appends `length` characters that the client's text has at offset `start`."""
        if not self._plain or self._ends[-1] is not None or self._starts[-1] + self.length - self._plain[-1] != start:
            self._append(start, None)
        self.length += length

    def replace(self, length: int, start: int, end: int) -> None:
        """Appends `length` characters that stand for the client's text from `start` to `end`."""
        self._append(start, end)
        self.length += length

    def extend(self, end: int) -> None:
        """Moves the end of the last span, a replaced one, to `end`."""
        if self._ends and self._ends[-1] is not None:
            self._ends[-1] = max(self._ends[-1], end)

    def start(self, offset: int) -> int:
        """Returns where the client's text begins that became the character at `offset`."""
        if offset >= self.length:
            return self.read
        span = self._span(offset)
        return self._starts[span] + (offset - self._plain[span] if self._ends[span] is None else 0)

    def end(self, offset: int) -> int:
        """Returns where the client's text ends that became the character before `offset`."""
        if offset <= 0:
            return 0
        span = self._span(offset - 1)
        end = self._ends[span]
        return self._starts[span] + offset - self._plain[span] if end is None else end

    def locate(self, words: Iterable[WordTime]) -> list[WordTime]:
        """Converts the offsets of words from the plain text to the client's."""
        if len(self._plain) <= 1 and not any(self._starts) and not any(self._ends):
            return list(words)
        return [replace(word, start=self.start(word.start), end=self.end(word.end)) for word in words]

    def boundary(self, offset: int) -> int:
        """Returns where the client's text is divided if the plain text is divided at `offset`.

        Markup before the division belongs to what follows; a replaced span is not divided, it follows as a whole.
        """
        if offset <= 0:
            return 0
        if offset >= self.length:
            return self.read
        span = self._span(offset)
        divided = self._ends[span] is not None and self._plain[span] < offset
        return self._starts[span] if divided else self.end(offset)

    def _span(self, offset: int) -> int:
        return bisect_right(self._plain, offset) - 1

    def _append(self, start: int, end: int | None) -> None:
        self._plain.append(self.length)
        self._starts.append(start)
        self._ends.append(end)
