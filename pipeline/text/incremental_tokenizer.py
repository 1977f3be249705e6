"""Tokenises a text from fragments; the tokens equal those of the whole text (docs/text.md says why).

The tokens of a piece of the pre-tokenizer do not depend on other pieces, so a token is final when its piece is. Held
back are the last piece, which may grow; a trailing run of white space, which a newline may absorb and whose last blank
a letter takes; and a trailing run of letters and marks, which a combining mark may recompose and whose borders depend
on case with some patterns. Within a run of caseless letters, such as Chinese, tokens are final where no token of the
vocabulary could span the border.
"""

# ruff: noqa: RUF003 - punctuation beyond ASCII is the subject here.
from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from .tokenizer import BLANK, TextTokenizer

_EAGER_CHARACTERS = 64
"""A longer held-back tail is tokenised again only after it grew by an eighth, which keeps the cost linear."""


@dataclass(frozen=True, slots=True)
class Token:
    """A final token; `end` is the offset in the pushed text that it reaches to."""

    id: int
    end: int


class IncrementalTokenizer:
    """Tokenises one text from fragments. Not for surrogates."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tail = ""
        """Text that is held back."""
        self._tail_start = 0
        """Its offset in the pushed text."""
        self._end = 0
        """The largest `Token.end` so far."""
        self._at_start = tokenizer.adds_prefix_space
        self._next_look = 0
        """Length of the tail from which it is tokenised again."""

    def push(self, text: str) -> list[Token]:
        """Accept a fragment; returns the tokens that became final."""
        self._tail += text
        if len(self._tail) < self._next_look:
            return []
        tokens = self._take_final() if self._tail else []
        held = len(self._tail)
        self._next_look = held + held // 8 if held > _EAGER_CHARACTERS else 0
        return tokens

    def flush(self, *, trim: bool = False) -> list[Token]:
        """End the text; returns the tokens of the held-back part, without trailing white space with `trim`.

        The next `push` begins a new text, whose offsets continue.
        """
        tokens: list[Token] = []
        tail = self._tail.rstrip() if trim else self._tail
        for piece in self._tokenizer.pieces(tail, at_start=self._at_start) if tail else ():
            tokens += self._tokens(piece.symbols, piece.start, piece.end)
        self._drop(len(self._tail))
        self._at_start = self._tokenizer.adds_prefix_space
        self._next_look = 0
        return tokens

    def _take_final(self) -> list[Token]:
        run_start = self._trailing_run_start()
        if not run_start and not self._is_caseless(self._tail[-1]):
            return []
        pieces = self._tokenizer.pieces(self._tail, at_start=self._at_start)
        cut = 0
        for k in range(len(pieces) - 1, 0, -1):
            start = pieces[k].start
            # One character can give several pieces ("½" becomes "1⁄2"), which must not be separated.
            if start <= run_start and start >= pieces[k - 1].end and _starts_cluster(self._tail[start]):
                cut = k
                break
        tokens: list[Token] = []
        for piece in pieces[:cut]:
            tokens += self._tokens(piece.symbols, piece.start, piece.end)
        remaining = pieces[cut:]
        if cut:
            self._drop(pieces[cut].start)
            self._at_start = False
        if len(remaining) == 1 and not self._at_start:
            tokens += self._take_final_within_run(remaining[0].symbols)
        return tokens

    def _trailing_run_start(self) -> int:
        """Offset in the tail of the trailing run of white space, or of letters and marks."""
        tail, normal = self._tail, self._tokenizer.normal
        at = len(tail)
        while at and _is_mark(tail[at - 1], normal(tail[at - 1])):
            at -= 1
        kind = _is_space if at and _is_space(normal(tail[at - 1])) else _has_letter
        while at and (kind(normal(tail[at - 1])) or _is_mark(tail[at - 1], normal(tail[at - 1]))):
            at -= 1
        if at and normal(tail[at - 1]).endswith("'"):
            at -= 1  # "'l" may become "'ll", which is a piece
        return at

    def _take_final_within_run(self, symbols: str) -> list[Token]:
        """Take tokens from the beginning of the last piece, if that is a run of caseless letters (Chinese)."""
        tail = self._tail
        cut = 0
        for i in range(len(tail) - 1):
            # `tail[i]` is final when the next character does not combine with it.
            if i and not self._is_caseless(tail[i]):
                break
            if not _starts_cluster(tail[i + 1]):
                break
            if i and not self._tokenizer.can_join(tail[i - 1], tail[i]):
                cut = i
        if not cut or not self._may_precede_run(tail[0]):
            return []
        cut_symbols = len(tail[:cut].encode())
        tokens = self._tokens(symbols[:cut_symbols], 0, cut)
        self._drop(cut)
        return tokens

    def _may_precede_run(self, char: str) -> bool:
        """Whether a piece of letters can begin with `char`: with a caseless letter, or no letter, mark or digit."""
        is_symbol = unicodedata.category(char)[0] not in "LMN" and self._tokenizer.normal(char) == char
        return is_symbol or self._is_caseless(char)

    def _is_caseless(self, char: str) -> bool:
        return unicodedata.category(char) in ("Lo", "Lm") and self._tokenizer.normal(char) == char

    def _tokens(self, symbols: str, start: int, end: int) -> list[Token]:
        """The tokens of a piece, which lies in the tail from `start` to `end`."""
        found = self._tokenizer.ids(symbols)
        counts = [count for _, count in found[:-1]]
        ends = [*(self._character_ends(symbols, start, end, counts) if counts else ()), end]
        tokens = []
        for (id_, _), at in zip(found, ends, strict=False):
            # A piece that shares a character with the one before begins before that one's end.
            self._end = max(self._end, self._tail_start + at)
            tokens.append(Token(id_, self._end))
        return tokens

    def _character_ends(self, symbols: str, start: int, end: int, counts: list[int]) -> Iterator[int]:
        """Offset in the tail that each count of symbols (bytes) reaches to.

        Exact up to the first character that the normaliser changes, interpolated after it.
        """
        text, normal = self._tail, self._tokenizer.normal
        at, size = start, 0
        if symbols[0] == BLANK and not text[start].isspace():
            size = 1  # the prefix space
        for count in counts:
            while at < end and size < count and normal(text[at]) == text[at]:
                size += len(text[at].encode())
                at += 1
            if size >= count or at == end:
                yield at
            else:
                yield at + (end - at) * (count - size) // (len(symbols) - size)

    def _drop(self, count: int) -> None:
        self._tail = self._tail[count:]
        self._tail_start += count


def _starts_cluster(char: str) -> bool:
    """Whether `char` never combines with the character before it."""
    return not unicodedata.category(char).startswith("M") and not (
        "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"  # Hangul vowels and finals
    )


def _is_mark(char: str, normal: str) -> bool:
    return not normal or unicodedata.category(char).startswith("M")


def _is_space(normal: str) -> bool:
    return normal.isspace()


def _has_letter(normal: str) -> bool:
    return any(unicodedata.category(char)[0] in "LM" for char in normal)
