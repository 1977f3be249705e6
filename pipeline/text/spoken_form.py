"""Text spoken as it is written, for voices that read digits and symbols themselves."""
# TODO-DOC The spoken form: only words and plain punctuation, as a voice trained on spelled-out English expects. What
# TODO-DOC is decided on is one written word at a time, so a word is held back until the character after it is known
# TODO-DOC ("3" may become "3.1", "Dr" may become "Dr."), and an amount of money until the word after it ("$5
# TODO-DOC million").

from __future__ import annotations

import re

from .english import MAGNITUDES, MONEY, spoken_english

# ruff: noqa: RUF001 - punctuation beyond ASCII is the subject here.
from .source_map import EMPTY, SourceMappedText, SourceMapWriter

_ENDS = frozenset(".?!。！？…")
_CLOSERS = frozenset("\"'”’)]」』）】》")


class Verbatim:
    """Passes text through, and adds a closing mark where the voice wants one."""

    def __init__(self, closing_mark: str = "") -> None:
        self._closing_mark = closing_mark
        self._last = ""
        self._end = 0

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Take in a fragment; it is returned as it is."""
        for char, end in zip(reversed(text.text), reversed(text.ends), strict=True):
            if char not in _CLOSERS and not char.isspace():
                self._last, self._end = char, end
                break
        return text

    def flush(self) -> SourceMappedText:
        """End the text; what is pushed after it begins a new one."""
        mark = self._closing_mark if self._last and self._last not in _ENDS else ""
        self._last = ""
        return SourceMappedText(mark, (self._end,) * len(mark)) if mark else EMPTY


MAX_WORD_CHARACTERS = 64
"""A longer run without white space is cut here."""

_ITEM = re.compile(r"[-*•+]|\d{1,2}[.)]")
"""What stands before each item of a list."""
_CLOSES_WORD = frozenset(',;?!)"”')
_SOFT = frozenset(",;:")
_HARD = frozenset(".?!")


class SpokenForm:
    """Turns one text into its spoken form from fragments; what comes out does not depend on how it was cut.

    Letters come out in lower case, white space as single blanks, of several punctuation marks the strongest
    first one; the blank after a sentence comes with its mark, so the last one may be too much. Text that
    nothing can be said for (other scripts, symbols alone) yields nothing.
    """

    def __init__(self, closing_mark: str = ".") -> None:
        self._closing_mark = closing_mark
        self._out = SourceMapWriter()
        self._tail = ""
        self._ends: list[int] = []
        self._seen = 0
        self._begin()

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Take in a fragment; returns the spoken form of the words that are now complete."""
        self._tail += text.text
        self._ends += text.ends
        self._words(final=False)
        return self._out.take()

    def flush(self) -> SourceMappedText:
        """Complete the text, with a closing mark where it has none; then a new one begins."""
        self._words(final=True)
        if self._spoken and not self._closed:
            self._out.add(self._closing_mark, max(self._end, self._last_read))
        self._begin()
        return self._out.take()

    def _begin(self) -> None:
        self._after_number = False
        self._after_capital = True
        self._spoken = False  # a letter was spoken
        self._closed = False  # the last thing spoken was . ? or !
        self._blank = False
        self._mark: tuple[str, int] | None = None
        self._line_ends = 0  # since the last word
        self._apostrophe: int | None = None
        self._end = 0
        self._last_read = 0

    # Written words

    def _words(self, *, final: bool) -> None:
        begin = 0
        while begin < len(self._tail) and (end := self._word_end(begin, final=final)):
            self._last_read = self._ends[end - 1]
            self._say(self._tail[begin:end], self._ends[begin:end])
            begin, self._seen = end, 0
        self._tail = self._tail[begin:]
        del self._ends[:begin]

    def _word_end(self, begin: int, *, final: bool) -> int:
        """Where the word or separator at `begin` ends; 0 while more text could make it longer."""
        tail = self._tail
        if _separates(tail[begin]):
            return begin + 1
        size = max(self._seen, 1)
        while begin + size < len(tail) and size < MAX_WORD_CHARACTERS and not self._ends_before(begin + size):
            size += 1
        self._seen = size
        end = begin + size
        if end < len(tail):
            return self._with_magnitude(begin, end, final=final)
        return end if final else 0

    def _ends_before(self, at: int) -> bool:
        before, char = self._tail[at - 1], self._tail[at]
        return _separates(char) or (char in _CLOSES_WORD and before.isalpha())

    def _with_magnitude(self, begin: int, end: int, *, final: bool) -> int:
        """Take the word after an amount of money along, where it multiplies it."""
        tail = self._tail
        if tail[end] != " " or not MONEY.fullmatch(tail, begin, end):
            return end
        after = end + 1
        while after < len(tail) and tail[after].isalpha() and after - end < 10:
            after += 1
        word = tail[end + 1 : after].lower()
        if after == len(tail) and not final:
            return 0 if any(magnitude.startswith(word) for magnitude in MAGNITUDES) else end
        return after if word in MAGNITUDES else end

    def _say(self, word: str, ends: list[int]) -> None:
        if _separates(word):
            self._blank, self._apostrophe = True, None
            self._line_ends += word == "\n"
            if word == "—":
                self._punctuate(",", ends[0])
            return
        if self._line_ends > 1 or (self._line_ends and _ITEM.fullmatch(word)):
            # A heading, a paragraph or an item of a list is over, whether a mark closes it or not.
            self._punctuate(".", self._end)
        self._line_ends = 0
        said = spoken_english(word, after_number=self._after_number, initial=self._after_capital)
        one_to_one = len(said) == len(word)
        for n, char in enumerate(said, 1):
            self._clean(char, ends[n - 1] if one_to_one else ends[-(-n * len(word) // len(said)) - 1])
        self._after_number = word[-1].isdigit()
        if any(map(str.isalpha, word)):
            self._after_capital = word.lstrip("\"'(“‘[")[:1].isupper()
        if word[-1] in _HARD and len(word) > 2:
            self._after_capital = True

    # Characters

    def _clean(self, char: str, end: int) -> None:
        if self._apostrophe is not None:
            at, self._apostrophe = self._apostrophe, None
            if "a" <= char <= "z":
                self._add("'", at)
            else:
                self._blank = True
        if "a" <= char <= "z":
            self._letter(char, end)
        elif char in _SOFT or char in _HARD:
            self._punctuate(char, end)
        elif char == "'" and self._spoken and not self._blank and not self._mark and not self._closed:
            self._apostrophe = end
        else:
            self._blank = True

    def _letter(self, char: str, end: int) -> None:
        if self._mark is not None:
            self._add(*self._mark)
            self._mark = None
            self._blank = True
        if self._spoken and self._blank and not self._closed:
            self._add(" ", self._end)
        self._add(char, end)
        self._spoken, self._closed, self._blank = True, False, False

    def _punctuate(self, char: str, end: int) -> None:
        self._apostrophe = None
        if not self._spoken or self._closed:
            return
        self._blank = False
        if char in _HARD:
            self._mark = None
            # Whatever follows, a blank comes first: with it the mark is settled for the tokenizer.
            self._add(char + " ", end)
            self._closed = True
        elif self._mark is None:
            # Held back: nothing but a closing mark may be the last one.
            self._mark = (char, end)

    def _add(self, text: str, end: int) -> None:
        self._end = max(self._end, end)
        self._out.add(text, self._end)


def _separates(char: str) -> bool:
    return char.isspace() or char == "—"
