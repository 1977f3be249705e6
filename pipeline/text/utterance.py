"""One utterance's text on its way from the client's fragments to tokens for the talker."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import EmptyText, TextTooLong
from .incremental import IncrementalTokenizer, Token
from .rules import TextRules
from .sanitize import Sanitizer
from .sentences import ends_sentence
from .spoken import SpokenForm
from .tokenizer import TextTokenizer
from .traced import TracedText
from .verbatim import Verbatim


@dataclass(frozen=True, slots=True)
class SpeechToken:
    """A text token for the talker, settled whatever follows.

    `source_end` is the offset in the client's text up to which it reaches (never decreasing). `sentence_end`
    marks a good place to begin a new generation after it.
    """

    id: int
    source_end: int
    sentence_end: bool


class UtteranceText:
    """The text of one utterance: sanitised, put into the voice's spoken form, tokenised as far as it is
    settled.

    The tokens do not depend on how the text was cut into fragments.
    """

    def __init__(self, rules: TextRules, tokenizer: TextTokenizer, max_characters: int) -> None:
        self._max_characters = max_characters
        self._sanitizer = Sanitizer(tokenizer.control_tokens)
        self._form = SpokenForm(rules.closing_mark) if rules.spoken_form else Verbatim(rules.closing_mark)
        self._tokenizer = IncrementalTokenizer(tokenizer)
        self._fragments: list[str] = []
        self._said = TracedText("", ())
        self._dropped = 0
        self.characters = 0
        """Characters of text accepted so far."""
        self.tokens = 0
        """Tokens given out so far."""

    @property
    def source(self) -> str:
        """All text accepted so far, as the client sent it."""
        if len(self._fragments) > 1:
            self._fragments = ["".join(self._fragments)]
        return self._fragments[0] if self._fragments else ""

    def push(self, fragment: str) -> list[SpeechToken]:
        """Accept a fragment and return the tokens it settles. Raises TextTooLong, taking nothing of it."""
        received = self.characters + len(fragment)
        if received > self._max_characters:
            raise TextTooLong(self._max_characters, received)
        self._fragments.append(fragment)
        self.characters = received
        return self._speech(self._tokenizer.push(self._say(self._form.push(self._sanitizer.push(fragment)))))

    def flush(self) -> list[SpeechToken]:
        """Settle all text accepted so far, closing mark included; what follows begins a new piece of text."""
        said = self._say(self._form.push(self._sanitizer.flush())) + self._say(self._form.flush())
        tokens = self._speech(self._tokenizer.push(said) + self._tokenizer.flush(trim=True))
        if tokens:
            tokens[-1] = SpeechToken(tokens[-1].id, self.characters, True)
        return tokens

    def end(self) -> list[SpeechToken]:
        """No more text comes: settle the rest. Raises EmptyText when the whole utterance yields no token."""
        tokens = self.flush()
        if not self.tokens:
            raise EmptyText("there is nothing to say in this text")
        return tokens

    def _say(self, text: TracedText) -> str:
        """Keep what goes to the tokenizer until its tokens have come out."""
        self._said = TracedText(self._said.text + text.text, self._said.ends + text.ends)
        return text.text

    def _speech(self, tokens: list[Token]) -> list[SpeechToken]:
        self.tokens += len(tokens)
        if not tokens:
            return []
        said, start = self._said, self._dropped
        speech = [
            SpeechToken(
                token.id,
                said.ends[max(token.end - start, 1) - 1],
                ends_sentence(said.text, token.end - start),
            )
            for token in tokens
        ]
        # A sentence is judged by the characters before its end.
        spare = max(0, tokens[-1].end - start - 32)
        if spare > 256:
            self._said = TracedText(said.text[spare:], said.ends[spare:])
            self._dropped += spare
        return speech
