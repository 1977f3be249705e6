"""Text with the position in the client's text of each of its characters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SourceMappedText:
    """`text[: i + 1]` is made of the client's text up to offset `ends[i]`; `ends` never decreases."""

    text: str
    ends: tuple[int, ...]


EMPTY = SourceMappedText("", ())


class TextForm(Protocol):
    """A step that rewrites one text from fragments; its output does not depend on how the text is split."""

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Accept a fragment; returns the output that no later text can change."""

    def flush(self) -> SourceMappedText:
        """End the text; returns the rest of the output. The next `push` begins a new text."""


class SourceMapWriter:
    """Collects a `SourceMappedText`."""

    __slots__ = ("_ends", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._ends: list[int] = []

    def add(self, text: str, end: int) -> None:
        """Append `text`, whose characters all reach to offset `end`."""
        self._parts.append(text)
        self._ends.extend([end] * len(text))

    def extend(self, text: str, ends: Iterable[int]) -> None:
        """Append `text`, whose characters reach to the offsets `ends`."""
        self._parts.append(text)
        self._ends.extend(ends)

    def take(self) -> SourceMappedText:
        """Return everything added since the last call."""
        if not self._parts:
            return EMPTY
        taken = SourceMappedText("".join(self._parts), tuple(self._ends))
        self._parts.clear()
        self._ends.clear()
        return taken
