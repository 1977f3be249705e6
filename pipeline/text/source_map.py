"""Text that remembers where in the client's text each of its characters came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceMappedText:
    """`ends[i]` is the offset in the client's text that `text[: i + 1]` reaches to; it never decreases."""

    text: str
    ends: tuple[int, ...]


EMPTY = SourceMappedText("", ())


class SourceMapWriter:
    """A `SourceMappedText` being written."""

    __slots__ = ("_ends", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._ends: list[int] = []

    def add(self, text: str, end: int) -> None:
        """Append `text`, all of which stands for the client's text up to `end`."""
        self._parts.append(text)
        self._ends.extend([end] * len(text))

    def extend(self, text: str, ends: Iterable[int]) -> None:
        """Append `text`, whose characters stand for the client's text up to each of `ends`."""
        self._parts.append(text)
        self._ends.extend(ends)

    def take(self) -> SourceMappedText:
        """What was written since the last call."""
        if not self._parts:
            return EMPTY
        taken = SourceMappedText("".join(self._parts), tuple(self._ends))
        self._parts.clear()
        self._ends.clear()
        return taken
