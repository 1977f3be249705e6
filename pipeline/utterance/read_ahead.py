"""The beginning of an utterance's text, made into tokens while the utterance still waits for its slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text.lexicon.filter import TextFilter
from ..text.markup.writer import Piece
from ..text.utterance_text import SpeechToken, UtteranceText
from .plan import FIRST_CHARACTERS


@dataclass(slots=True)
class ReadAhead:
    """What an utterance's filter and tokenizer made of text that its speech has not got yet."""

    characters: int = 0
    """Characters of it that the speech has still to get, and passes to the filter no more."""
    tokens: Sequence[SpeechToken] = ()
    """Its first tokens."""
    pieces: Sequence[Piece] = ()
    """What the filter made of the text behind them."""

    @classmethod
    def of(cls, beginning: str, text_filter: TextFilter, text: UtteranceText) -> ReadAhead:
        """Reads the first `FIRST_CHARACTERS` of `beginning`, with which the text of the utterance begins."""
        first = beginning[:FIRST_CHARACTERS]
        pieces = text_filter.push(first)
        if pieces and isinstance(pieces[0], str):
            return cls(len(first), text.append(pieces[0]), pieces[1:])
        return cls(len(first), (), pieces)

    def skip(self, fragment: str) -> str:
        """Returns what the filter has not got of the next fragment that the speech gets."""
        known = min(self.characters, len(fragment))
        self.characters -= known
        return fragment[known:]

    def take(self) -> tuple[Sequence[SpeechToken], Sequence[Piece]]:
        """Returns `tokens` and `pieces`, once."""
        tokens, pieces = self.tokens, self.pieces
        self.tokens = self.pieces = ()
        return tokens, pieces
