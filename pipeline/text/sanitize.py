"""What a client may send but a voice must not see: control-token literals, control characters, torn
characters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from .source_map import SourceMappedText, SourceMapWriter

MAX_MARKS = 16
"""Combining marks kept on one character; no script needs as many, and a run of them is held back as a whole.
"""

MAX_RUN = 512
"""Letters, digits, blanks or other characters in a row; a run may be one piece for the tokenizer."""

_REPLACEMENT = "\ufffd"


class Sanitizer:
    """Cleans one text from fragments; what comes out does not depend on how the text was cut.

    Surrogate halves are joined over fragments, and become U+FFFD where the other half does not follow.
    Control characters go, the odd ones among white space become blanks. A control token written out, such as
    `<|im_end|>`, becomes a blank; a suffix that could grow into one is held back. White space at the start is
    dropped, and a run of hundreds of characters of one kind is parted.
    """

    def __init__(self, control_tokens: Iterable[str]) -> None:
        literals = frozenset(token for token in control_tokens if token)
        self._literals = literals
        self._openings = frozenset(token[0] for token in literals)
        self._beginnings = frozenset(token[:n] for token in literals for n in range(1, len(token)))
        self._out = SourceMapWriter()
        self._read = 0
        self._high = ""
        self._marks = 0
        self._kind = ""
        self._run = 0
        self._pending: list[tuple[str, int]] = []
        self._at_start = True

    def push(self, fragment: str) -> SourceMappedText:
        """Take in a fragment as it was sent, even half a surrogate pair; returns what is now certain."""
        if self._is_plain(fragment):
            self._take_plain(fragment)
            return self._out.take()
        for char in fragment:
            self._read += 1
            if self._high:
                if "\udc00" <= char <= "\udfff":
                    pair = (self._high + char).encode("utf-16", "surrogatepass").decode("utf-16")
                    self._high = ""
                    self._clean(pair, self._read)
                    continue
                self._lone_high(self._read - 1)
            if "\ud800" <= char <= "\udbff":
                self._high = char
            elif "\udc00" <= char <= "\udfff":
                self._clean(_REPLACEMENT, self._read)
            else:
                self._clean(char, self._read)
        return self._out.take()

    def _is_plain(self, fragment: str) -> bool:
        """Whether all of it, apart from blanks at the start of the text, goes as it came: what most text is."""
        return (
            fragment.isascii()
            and fragment.isprintable()
            and not (self._high or self._pending)
            and self._run + len(fragment) <= MAX_RUN
            and self._openings.isdisjoint(fragment)
        )

    def _take_plain(self, fragment: str) -> None:
        """As one character after another would, at a fraction of the time."""
        text = fragment.lstrip() if self._at_start else fragment
        self._at_start = self._at_start and not text
        skipped, begin = len(fragment) - len(text), self._read
        self._read += len(fragment)
        self._out.extend(text, range(begin + skipped + 1, self._read + 1))
        if fragment:
            kind, count = _kind(fragment[-1]), len(fragment)
            run = next((n for n, char in enumerate(reversed(fragment)) if _kind(char) != kind), count)
            self._run = run + (self._run if run == count and kind == self._kind else 0)
            self._kind, self._marks = kind, 0

    def flush(self) -> SourceMappedText:
        """Return what was held back; what is pushed after it begins a new text."""
        if self._high:
            self._lone_high(self._read)
        for char, end in self._pending:
            self._emit(char, end)
        self._pending.clear()
        self._marks = 0
        self._at_start = True
        return self._out.take()

    def _lone_high(self, end: int) -> None:
        self._high = ""
        self._clean(_REPLACEMENT, end)

    def _clean(self, char: str, end: int) -> None:
        category = unicodedata.category(char)
        if category.startswith("M"):
            self._marks += 1
            if self._marks > MAX_MARKS:
                return
        else:
            self._marks = 0
        if category == "Cc" and char not in "\t\n\r":
            if not char.isspace():
                return
            char = " "
        elif char == "\ufeff" or ord(char) & 0xFFFE == 0xFFFE or "\ufdd0" <= char <= "\ufdef":
            return  # a byte order mark, or no character at all
        if category.startswith("M") or self._keeps(char, end):
            self._match(char, end)

    def _keeps(self, char: str, end: int) -> bool:
        """Cut a run of one kind that is too long: blanks are dropped, others parted by a blank."""
        kind = _kind(char)
        if kind != self._kind:
            self._kind, self._run = kind, 0
        self._run += 1
        if self._run <= MAX_RUN:
            return True
        if kind == "Z":
            return False
        self._match(" ", end - 1)
        self._run = 1
        return True

    def _match(self, char: str, end: int) -> None:
        """Follow the control tokens: `_pending` is the longest suffix of the text that begins one."""
        pending = self._pending
        if not pending and char not in self._beginnings and char not in self._literals:
            self._emit(char, end)
            return
        pending.append((char, end))
        text = "".join(c for c, _ in pending)
        for n in range(len(text)):
            if text[n:] in self._literals:
                for c, e in pending[:n]:
                    self._emit(c, e)
                pending.clear()
                self._emit(" ", end)
                return
        while pending and text not in self._beginnings:
            self._emit(*pending.pop(0))
            text = text[1:]

    def _emit(self, char: str, end: int) -> None:
        if self._at_start:
            if char.isspace():
                return
            self._at_start = False
        self._out.add(char, end)


def _kind(char: str) -> str:
    return "L" if char.isalpha() else "N" if char.isnumeric() else "Z" if char.isspace() else "O"
