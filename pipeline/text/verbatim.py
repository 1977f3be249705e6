"""Text spoken as it is written, for voices that read digits and symbols themselves."""

# ruff: noqa: RUF001 - punctuation beyond ASCII is the subject here.
from __future__ import annotations

from .traced import EMPTY, TracedText

_ENDS = frozenset(".?!。！？…")
_CLOSERS = frozenset("\"'”’)]」』）】》")


class Verbatim:
    """Passes text through, and adds a closing mark where the voice wants one."""

    def __init__(self, closing_mark: str = "") -> None:
        self._closing_mark = closing_mark
        self._last = ""
        self._end = 0

    def push(self, text: TracedText) -> TracedText:
        """Take in a fragment; it is returned as it is."""
        for char, end in zip(reversed(text.text), reversed(text.ends), strict=True):
            if char not in _CLOSERS and not char.isspace():
                self._last, self._end = char, end
                break
        return text

    def flush(self) -> TracedText:
        """End the text; what is pushed after it begins a new one."""
        mark = self._closing_mark if self._last and self._last not in _ENDS else ""
        self._last = ""
        return TracedText(mark, (self._end,) * len(mark)) if mark else EMPTY
