"""The text of an utterance with its flushes: how much of it a speech has got, and what is taken back of its end."""

from __future__ import annotations

from typing import NamedTuple

from voxgate.pipeline.interface import Speech

from .text_offsets import TextOffsets


class TextMark(NamedTuple):
    """A place in a text: so many code points and flushes precede it."""

    characters: int = 0
    flushes: int = 0


class AcceptedText:
    """All text that was accepted from the client. Offsets are in code points. Synchronous."""

    def __init__(self, *, utf16: bool = False) -> None:
        """`utf16`: whether the client counts UTF-16 units."""
        self._utf16 = utf16
        self._fragments: list[str] = []
        self._flushes: list[int] = []
        """Offsets of the flushes, ascending."""
        self._passed = TextMark()
        """What the present speech has got."""
        self.length = 0
        self.offsets = TextOffsets(utf16=utf16)
        """Converts offsets to the client's units."""

    def __str__(self) -> str:
        if len(self._fragments) > 1:
            self._fragments = ["".join(self._fragments)]
        return self._fragments[0] if self._fragments else ""

    @property
    def beginning(self) -> str:
        """The text before the first flush."""
        return str(self)[: self._flushes[0]] if self._flushes else str(self)

    @property
    def end(self) -> TextMark:
        return TextMark(self.length, len(self._flushes))

    def add(self, fragment: str) -> None:
        """Appends a fragment."""
        self._fragments.append(fragment)
        self.offsets.add(fragment)
        self.length += len(fragment)

    def flush(self) -> None:
        """Flushes behind the text so far; has no effect behind no text or another flush."""
        if self.length and self._flushes[-1:] != [self.length]:
            self._flushes.append(self.length)

    def mark_passed(self) -> None:
        """The speech has got all of it, as it came."""
        self._passed = self.end

    def pass_again(self) -> None:
        """Another speech follows, which has got nothing yet."""
        self._passed = TextMark()

    def pass_to(self, speech: Speech, end: TextMark) -> None:
        """Passes to the speech what it has not got, up to a place."""
        for piece in self.pieces(self._passed, end):
            if piece is None:
                speech.flush()
            else:
                speech.push_text(piece)
        self._passed = end

    def pieces(self, begin: TextMark, end: TextMark) -> list[str | None]:
        """Returns the text between two places, with None for a flush."""
        text, at = str(self), begin.characters
        pieces: list[str | None] = []
        for flush in self._flushes[begin.flushes : end.flushes]:
            pieces += [text[at:flush], None] if flush > at else [None]
            at = flush
        return [*pieces, text[at : end.characters]] if at < end.characters else pieces

    def word_begin(self, offset: int) -> int:
        """Returns where the word begins that an offset ends or divides; the offset itself behind a blank."""
        text = str(self)
        while offset and not text[offset - 1].isspace():
            offset -= 1
        return offset

    def take_back(self, kept: int, end: TextMark, flush: int | None) -> str:
        """Removes and returns the text from offset `kept` to `end`; `flush`: where the kept text is to be flushed."""
        text, removed = str(self), end.characters - kept
        before = {at for at in self._flushes[: end.flushes] if at <= kept} | ({flush} if flush else set())
        behind = [at - removed for at in self._flushes[end.flushes :]]
        self._flushes = sorted(before) + [at for at in behind if at not in before]
        self._fragments = [text[:kept], text[end.characters :]]
        self.length -= removed
        self.offsets = TextOffsets(utf16=self._utf16)
        self.offsets.add(str(self))
        return text[kept : end.characters]
