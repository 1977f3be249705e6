"""Tokens that no later text can change, as the text comes in.

The tokens of a piece never depend on other pieces, so it is enough to know which pieces are settled. Held
back are the last piece (it may grow), a trailing run of white space (a newline may absorb it, a letter takes
its last blank) and a trailing run of letters and marks (a combining mark may still recompose it; with some
patterns case moves its borders). Within a run of letters without case, such as Chinese, tokens are settled
wherever no token of the vocabulary could reach across. Whatever the fragments, the tokens are those of the
whole text at once.
"""

# ruff: noqa: RUF003 - punctuation beyond ASCII is the subject here.
from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from .tokenizer import BLANK, TextTokenizer

_EAGER_CHARACTERS = 64
"""A longer held tail is looked at again only after it grew by an eighth: a long run stays nearly linear."""


@dataclass(frozen=True, slots=True)
class Token:
    """A text token that is settled; `end` is the offset in the text given in up to which it reaches."""

    id: int
    end: int


class IncrementalTokenizer:
    """Tokenises one text from fragments."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tail = ""
        self._taken = 0
        self._end = 0
        self._at_start = tokenizer.adds_prefix_space
        self._look_at = 0

    def push(self, text: str) -> list[Token]:
        """Take in a fragment; returns the tokens that are now settled. No surrogates."""
        self._tail += text
        if len(self._tail) < self._look_at:
            return []
        tokens = self._settled() if self._tail else []
        held = len(self._tail)
        self._look_at = held + held // 8 if held > _EAGER_CHARACTERS else 0
        return tokens

    def flush(self, *, trim: bool = False) -> list[Token]:
        """End the text: everything held back is settled, or white space at the end dropped with `trim`.

        What is pushed after it begins a new text.
        """
        tokens: list[Token] = []
        tail = self._tail.rstrip() if trim else self._tail
        for piece in self._tokenizer.pieces(tail, at_start=self._at_start) if tail else ():
            tokens += self._tokens(piece.symbols, piece.start, piece.end)
        self._drop(len(self._tail))
        self._at_start = self._tokenizer.adds_prefix_space
        self._look_at = 0
        return tokens

    def _settled(self) -> list[Token]:
        hold = self._hold()
        if not hold and not self._is_caseless(self._tail[-1]):
            return []
        pieces = self._tokenizer.pieces(self._tail, at_start=self._at_start)
        cut = 0
        for k in range(len(pieces) - 1, 0, -1):
            start = pieces[k].start
            # A character can spread over several pieces ("½" becomes "1⁄2"): no cut inside of it.
            if start <= hold and start >= pieces[k - 1].end and _opens(self._tail[start]):
                cut = k
                break
        tokens: list[Token] = []
        for piece in pieces[:cut]:
            tokens += self._tokens(piece.symbols, piece.start, piece.end)
        remaining = pieces[cut:]
        if cut:
            taken = pieces[cut].start
            self._drop(taken)
            self._at_start = False
        if len(remaining) == 1 and not self._at_start:
            tokens += self._within_run(remaining[0].symbols)
        return tokens

    def _hold(self) -> int:
        """Where the trailing run of white space, or of letters and marks, begins."""
        tail, normal = self._tail, self._tokenizer.normal
        at = len(tail)
        while at and _is_mark(tail[at - 1], normal(tail[at - 1])):
            at -= 1
        kind = _is_space if at and _is_space(normal(tail[at - 1])) else _has_letter
        while at and (kind(normal(tail[at - 1])) or _is_mark(tail[at - 1], normal(tail[at - 1]))):
            at -= 1
        if at and normal(tail[at - 1]).endswith("'"):
            at -= 1  # "'l" may become "'ll", a piece of its own
        return at

    def _within_run(self, symbols: str) -> list[Token]:
        """Settle tokens inside the last piece, when that is a run of caseless letters (Chinese)."""
        tail = self._tail
        cut = 0
        for i in range(len(tail) - 1):
            # `tail[i]` is final once the character after it is known to begin anew.
            if i and not self._is_caseless(tail[i]):
                break
            if not _opens(tail[i + 1]):
                break
            if i and not self._tokenizer.can_join(tail[i - 1], tail[i]):
                cut = i
        if not cut or not self._may_begin_run(tail[0]):
            return []
        reach = len(tail[:cut].encode())
        tokens = self._tokens(symbols[:reach], 0, cut)
        self._drop(cut)
        return tokens

    def _may_begin_run(self, char: str) -> bool:
        """Letters of a run may follow one character that is neither letter, mark nor digit."""
        lone = unicodedata.category(char)[0] not in "LMN" and self._tokenizer.normal(char) == char
        return lone or self._is_caseless(char)

    def _is_caseless(self, char: str) -> bool:
        return unicodedata.category(char) in ("Lo", "Lm") and self._tokenizer.normal(char) == char

    def _tokens(self, symbols: str, start: int, end: int) -> list[Token]:
        found = self._tokenizer.ids(symbols)
        reaches = [reach for _, reach in found[:-1]]
        ends = [*(self._characters(symbols, start, end, reaches) if reaches else ()), end]
        tokens = []
        for (id_, _), at in zip(found, ends, strict=False):
            # Pieces that come from one character begin before the end of the piece before.
            self._end = max(self._end, self._taken + at)
            tokens.append(Token(id_, self._end))
        return tokens

    def _characters(self, symbols: str, start: int, end: int, reaches: list[int]) -> Iterator[int]:
        """How far each count of symbols (bytes) reaches; exact as far as the normaliser changes nothing."""
        text, normal = self._tail, self._tokenizer.normal
        at, size = start, 0
        if symbols[0] == BLANK and not text[start].isspace():
            size = 1  # the prefix space
        for reach in reaches:
            while at < end and size < reach and normal(text[at]) == text[at]:
                size += len(text[at].encode())
                at += 1
            if size >= reach or at == end:
                yield at
            else:
                yield at + (end - at) * (reach - size) // (len(symbols) - size)

    def _drop(self, count: int) -> None:
        self._tail = self._tail[count:]
        self._taken += count


def _opens(char: str) -> bool:
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
