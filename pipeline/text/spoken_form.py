"""The two forms of text for a voice: spelled-out English words, and the text as written.

`SpokenForm` produces only words and plain punctuation, for voices trained on spelled-out English. It decides on one
written word at a time. So a word is held back until the next character is known ("3" may become "3.1", "Dr" may become
"Dr."), and an amount of money until the next word is known ("$5 million").
"""

# ruff: noqa: RUF001 - punctuation beyond ASCII is the subject here.
from __future__ import annotations

import re

from .english import CURRENCY_SIGNS, MAGNITUDES, MONEY, spoken_english
from .source_map import EMPTY, SourceMappedText, SourceMapWriter

MAX_WORD_CHARACTERS = 64
"""A longer run without white space is split here."""

_LIST_MARKER = re.compile(r"[-*•#>→]+|=>|\+|\d{1,2}[.)]")
"""What precedes an item of a list, a heading or a quotation; numbers and "+" are spoken."""
_WORD_CLOSERS = frozenset(',;?!)"”')
"""Marks that end a word of letters, so that it need not wait for white space."""
_SOFT_MARKS = frozenset(",;:")
_HARD_MARKS = frozenset(".?!")


class SpokenForm:
    """A `TextForm` for voices that expect words of lower-case letters with plain punctuation.

    White space becomes single blanks. Of several punctuation marks, a mark that ends a sentence is kept, otherwise the
    first. The blank after a sentence comes with its mark, so the text may end with a blank. Text without spoken
    equivalent (other scripts, emoji) is dropped.
    """

    def __init__(self, closing_mark: str = ".") -> None:
        self._closing_mark = closing_mark
        self._out = SourceMapWriter()
        self._tail = ""
        """Text that is held back."""
        self._ends: list[int] = []
        """Source offset that each character of the tail reaches to."""
        self._scanned = 0
        """Characters of the tail that are known to belong to its first word."""
        self._begin_text()

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Accept a fragment; returns the spoken form of the words that are complete."""
        self._tail += text.text
        self._ends += text.ends
        self._say_words(final=False)
        return self._out.take()

    def flush(self) -> SourceMappedText:
        """End the text; returns the rest of the spoken form, with a closing mark if it has none."""
        self._say_words(final=True)
        if self._spoken and not self._closed:
            self._out.add(self._closing_mark, max(self._end, self._last_read))
        self._begin_text()
        return self._out.take()

    def _begin_text(self) -> None:
        self._after_number = False
        self._after_capital = True
        self._spoken = False  # any letter was written
        self._closed = False  # the last character written was . ? or !
        self._blank = False  # a blank precedes the next letter
        self._mark: tuple[str, int] | None = None  # a soft mark that is held back, and its source offset
        self._line_ends = 1  # since the last word; the text begins a line
        self._apostrophe: int | None = None  # source offset of an apostrophe that is held back
        self._end = 0  # source offset of the last character written
        self._last_read = 0  # source offset of the last word read

    def _say_words(self, *, final: bool) -> None:
        begin = 0
        while begin < len(self._tail) and (end := self._word_end(begin, final=final)):
            self._last_read = self._ends[end - 1]
            self._say(self._tail[begin:end], self._ends[begin:end])
            begin, self._scanned = end, 0
        self._tail = self._tail[begin:]
        del self._ends[:begin]

    def _word_end(self, begin: int, *, final: bool) -> int:
        """Where the word or separator at `begin` ends; 0 while more text could extend it."""
        tail = self._tail
        if _separates(tail[begin]):
            return begin + 1
        size = max(self._scanned, 1)
        while begin + size < len(tail) and size < MAX_WORD_CHARACTERS and not self._is_word_end(begin, begin + size):
            size += 1
        self._scanned = size
        end = begin + size
        if end < len(tail):
            return self._with_magnitude(begin, end, final=final)
        return end if final else 0

    def _is_word_end(self, begin: int, at: int) -> bool:
        char = self._tail[at]
        closes = char in _WORD_CLOSERS and self._tail[at - 1].isalpha() and "://" not in self._tail[begin:at]
        return closes or _separates(char)

    def _with_magnitude(self, begin: int, end: int, *, final: bool) -> int:
        """The end of the word, or of the magnitude after it if it is an amount of money; 0 while that is unknown.

        The blank after a dash between numbers belongs to the dash.
        """
        tail = self._tail
        if tail[begin:end] in ("-", "–") and tail[end] == " " and self._after_number and not self._line_ends:
            if end + 1 == len(tail):
                return end if final else 0
            return end + (tail[end + 1].isdigit() or tail[end + 1] in CURRENCY_SIGNS)
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
        marker = self._line_ends and _LIST_MARKER.fullmatch(word)
        if self._line_ends > 1 or marker:
            # The end of a heading, a paragraph or a list item counts as the end of a sentence.
            self._punctuate(".", self._end)
        if marker and word[-1] not in "+.)":
            self._blank, self._after_number = True, False
            return
        self._line_ends = 0
        spoken = (
            " to "
            if word[-1] == " "
            else spoken_english(word, after_number=self._after_number, initial=self._after_capital)
        )
        one_to_one = len(spoken) == len(word)
        for n, char in enumerate(spoken, 1):
            self._clean(char, ends[n - 1] if one_to_one else ends[-(-n * len(word) // len(spoken)) - 1])
        self._after_number = word[-1].isdigit()
        if any(map(str.isalpha, word)):
            self._after_capital = word.lstrip("\"'(“‘[")[:1].isupper()
        if word[-1] in _HARD_MARKS and len(word) > 2:
            self._after_capital = True

    def _clean(self, char: str, end: int) -> None:
        if self._apostrophe is not None:
            at, self._apostrophe = self._apostrophe, None
            if "a" <= char <= "z":
                self._add("'", at)
            else:
                self._blank = True
        if "a" <= char <= "z":
            self._letter(char, end)
        elif char in _SOFT_MARKS or char in _HARD_MARKS:
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
        if char in _HARD_MARKS:
            self._mark = None
            # A blank always follows; written with the mark, it makes the mark final for the tokenizer.
            self._add(char + " ", end)
            self._closed = True
        elif self._mark is None:
            # Held back, because at the end of the text only a closing mark is written.
            self._mark = (char, end)

    def _add(self, text: str, end: int) -> None:
        self._end = max(self._end, end)
        self._out.add(text, self._end)


def _separates(char: str) -> bool:
    return char.isspace() or char == "—"


_SENTENCE_MARKS = frozenset(".?!。！？…")
_CLOSERS = frozenset("\"'”’)]」』）】》")


class Verbatim:
    """A `TextForm` that passes the text unchanged and appends a closing mark if it ends without one."""

    def __init__(self, closing_mark: str = "") -> None:
        self._closing_mark = closing_mark
        self._last = ""
        """The last character that is neither white space nor a closing quote or bracket."""
        self._end = 0
        """Its offset in the source."""

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Accept a fragment; returns it unchanged."""
        for char, end in zip(reversed(text.text), reversed(text.ends), strict=True):
            if char not in _CLOSERS and not char.isspace():
                self._last, self._end = char, end
                break
        return text

    def flush(self) -> SourceMappedText:
        """End the text; returns the closing mark, or nothing."""
        mark = self._closing_mark if self._last and self._last not in _SENTENCE_MARKS else ""
        self._last = ""
        return SourceMappedText(mark, (self._end,) * len(mark)) if mark else EMPTY
