"""Offsets in an utterance's text in the units of the client: Unicode code points, or UTF-16 units."""

from __future__ import annotations

from bisect import bisect_left

_LAST_OF_ONE_UNIT = "\uffff"


class TextOffsets:
    """Converts offsets in the text so far from code points. Synchronous.

    `utf16`: to UTF-16 units, in which JavaScript, Java and C# count; otherwise they are kept.
    """

    def __init__(self, *, utf16: bool = False) -> None:
        self._utf16 = utf16
        self._characters = 0
        self._pairs: list[int] = []
        """Offsets of the characters that take two units, ascending."""

    def add(self, fragment: str) -> None:
        """Takes the next fragment of the text."""
        if self._utf16 and not fragment.isascii():
            self._pairs += [self._characters + at for at, each in enumerate(fragment) if each > _LAST_OF_ONE_UNIT]
        self._characters += len(fragment)

    def code_points(self, offset: int) -> int:
        """Returns the offset in code points of the client's `offset`; within a pair, that of the pair."""
        before = bisect_left(range(len(self._pairs)), offset, key=lambda number: self._pairs[number] + number)
        return offset - before

    def of(self, offset: int) -> int:
        """Returns the client's offset of the character at `offset` code points."""
        return offset + bisect_left(self._pairs, offset)
