"""Removes from a client's text what must not reach the talker: control tokens, control characters, lone surrogates."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from .source_map import SourceMappedText, SourceMapWriter

MAX_MARKS = 16
"""Combining marks kept on one character: more than any script needs. The tokenizer holds back a run of them."""

MAX_RUN = 512
"""Letters, digits, blanks or other characters in a row: a run may be one piece, which the tokenizer holds back."""

PRIVATE_HALVES = 0x10F000
"""Private-use characters from here on stand for the 2,048 surrogate halves, in their order: text that is to be encoded
as UTF-8 on its way here cannot contain halves themselves."""

_FIRST_HALF, _HALVES = 0xD800, 0x800
_REPLACEMENT = "\ufffd"


class Sanitizer:
    """Cleans one text from fragments; the output does not depend on how the text is split.

    Surrogate halves, or the characters that stand for them, are joined across fragments; a half without the other
    becomes U+FFFD. Control characters are dropped, except that those which are white space become blanks. A written
    control token, such as `<|im_end|>`, becomes a blank; a suffix that could become one is held back. Leading white
    space is dropped, or held back until a character follows, and runs of more than `MAX_RUN` characters of one kind are
    split.
    """

    def __init__(self, control_tokens: Iterable[str], *, trim: bool = True) -> None:
        """`trim`: drop all leading white space; otherwise only that up to its last line break."""
        self._tokens, self._prefixes, self._first_characters = _token_sets(tuple(control_tokens))
        self._out = SourceMapWriter()
        self._read = 0
        """Characters of the client's text read so far."""
        self._high = ""
        """A high surrogate that waits for its low half."""
        self._marks = 0
        """Combining marks since the last other character."""
        self._kind = ""
        """Kind of the last character, and the length of its run."""
        self._run = 0
        self._pending: list[tuple[str, int]] = []
        """Held-back characters with their ends: the longest suffix that is a prefix of a control token."""
        self._at_start = True
        self._trim = trim
        self._leading: list[tuple[str, int]] = []
        """White space that begins the text, with its ends, unless it is dropped."""

    def push(self, fragment: str) -> SourceMappedText:
        """Accept a fragment, which may contain half a surrogate pair; returns the output that is final."""
        if self._is_plain(fragment):
            self._take_plain(fragment)
            return self._out.take()
        for char in map(_half, fragment):
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
        """Whether the fragment needs no change but for leading blanks to drop, as most fragments do."""
        return (
            fragment.isascii()
            and fragment.isprintable()
            and not (self._high or self._pending)
            and (self._trim or not self._at_start)
            and self._run + len(fragment) <= MAX_RUN
            and self._first_characters.isdisjoint(fragment)
        )

    def _take_plain(self, fragment: str) -> None:
        """Process a plain fragment at once, with the same result as character by character."""
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
        """End the text; returns what was held back. The next `push` begins a new text."""
        if self._high:
            self._lone_high(self._read)
        for char, end in self._pending:
            self._emit(char, end)
        self._pending.clear()
        self._marks = 0
        self._at_start = True
        self._leading.clear()
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
            return  # a byte order mark or a noncharacter
        if category.startswith("M") or self._limit_run(char, end):
            self._match(char, end)

    def _limit_run(self, char: str, end: int) -> bool:
        """Count the run of characters of one kind, and split it with a blank; returns False for a surplus blank."""
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
        """Append the character, and replace a complete control token."""
        pending = self._pending
        if not pending and char not in self._prefixes and char not in self._tokens:
            self._emit(char, end)
            return
        pending.append((char, end))
        text = "".join(c for c, _ in pending)
        for n in range(len(text)):
            if text[n:] in self._tokens:
                for c, e in pending[:n]:
                    self._emit(c, e)
                pending.clear()
                self._emit(" ", end)
                return
        while pending and text not in self._prefixes:
            self._emit(*pending.pop(0))
            text = text[1:]

    def _emit(self, char: str, end: int) -> None:
        if self._at_start:
            if char.isspace():
                self._hold_leading(char, end)
                return
            self._at_start = False
            for blank, blank_end in self._leading:
                self._out.add(blank, blank_end)
            self._leading.clear()
        self._out.add(char, end)

    def _hold_leading(self, char: str, end: int) -> None:
        if char in "\r\n":
            # The tokenizer would join it to the line break that precedes the text in the prompt.
            self._leading.clear()
        elif not self._trim:
            self._leading.append((char, end))


def stand_in(half: int) -> str:
    """Returns the private-use character for a surrogate half, 0xD800 to 0xDFFF."""
    return chr(PRIVATE_HALVES + half - _FIRST_HALF)


def join_halves(text: str) -> str:
    """Returns the text with pairs of stand-ins as the characters that they make, and others as U+FFFD."""
    if text.isascii() or not any(PRIVATE_HALVES <= ord(char) < PRIVATE_HALVES + _HALVES for char in text):
        return text
    return "".join(map(_half, text)).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _half(char: str) -> str:
    """Returns the surrogate half that a character stands for; another character as it is."""
    number = ord(char) - PRIVATE_HALVES
    return chr(_FIRST_HALF + number) if 0 <= number < _HALVES else char


def _kind(char: str) -> str:
    """Letter, number, white space or other."""
    return "L" if char.isalpha() else "N" if char.isnumeric() else "Z" if char.isspace() else "O"


@lru_cache(maxsize=8)
def _token_sets(control_tokens: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Returns the tokens, their proper prefixes, and their first characters; once for all utterances of a model."""
    tokens = frozenset(token for token in control_tokens if token)
    prefixes = frozenset(token[:n] for token in tokens for n in range(1, len(token)))
    return tokens, prefixes, frozenset(token[0] for token in tokens)
