"""Where one sentence ends and another can begin."""
# TODO-DOC One utterance's text on its way from the client's fragments to tokens for the talker.

from __future__ import annotations

# ruff: noqa: RUF001, SIM905 - punctuation beyond ASCII and lists of words are the subject here.
import re
from dataclasses import dataclass

from ..errors import EmptyText, TextTooLong
from ..voice_config import TextRules
from .incremental_tokenizer import IncrementalTokenizer, Token
from .normalise.normaliser import Normaliser, can_normalise
from .sanitize import Sanitizer
from .source_map import SourceMappedText
from .spoken_form import SpokenForm, Verbatim
from .tokenizer import TextTokenizer

_WIDE = re.compile(r"[。！？｡…]+[”’」』）】》]*$")
_NARROW = re.compile(r"([.?!]+)[\"'”’)\]]*$")
_WORD = re.compile(r"[\w.]*$")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e a.m p.m fig approx dept inc ltd co"
    " jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
LOOK_BACK_CHARACTERS = 24
"""Characters before a place that decide on it."""


def ends_sentence(text: str, at: int) -> bool:
    """Whether a sentence of `text` ends at offset `at`, judged by what stands before it and the character
    after it.

    Chinese and Japanese marks end it by themselves; `.`, `?` and `!` only before white space, and a period
    not after an abbreviation, an initial, or a number that begins a line.
    """
    if at >= len(text):
        return False
    before = text[max(0, at - LOOK_BACK_CHARACTERS) : at]
    blanks = len(before) - len(before.rstrip())
    before = before.rstrip()
    if _WIDE.search(before) and not re.match(r"[。！？｡…”’」』）】》]", text[at]):
        return True
    marks = _NARROW.search(before)
    if marks is None or not (blanks or text[at].isspace()):
        return False
    if marks[1] != ".":
        return True
    found = _WORD.search(before[: marks.start()])
    word = found[0] if found else ""
    if word.isdigit() and len(word) <= 2:
        line = before[: marks.start() - len(word)]
        return bool(line.rstrip(" ")) and not line.endswith("\n")
    return len(word) > 1 and word.lower() not in _ABBREVIATIONS and not re.fullmatch(r"(?:\w\.)+\w", word)


@dataclass(frozen=True, slots=True)
class SpeechToken:
    """A text token for the talker, settled whatever follows.

    `source_end` is the offset in the client's text up to which it reaches (never decreasing). `sentence_end`
    marks a good place to begin a new generation after it; a flush is one, marked or not.
    """

    id: int
    source_end: int
    sentence_end: bool


class UtteranceText:
    """The text of one utterance: sanitised, put into the voice's spoken form, tokenised as far as it is settled.

    The tokens do not depend on how the text was cut into fragments.
    """

    def __init__(
        self, rules: TextRules, tokenizer: TextTokenizer, max_characters: int, normalise: str | None = None
    ) -> None:
        """`normalise`: the language to say numbers and the like in; a voice with a spoken form has its own way."""
        self._max_characters = max_characters
        self._sanitizer = Sanitizer(tokenizer.control_tokens)
        self._form = _form(rules, normalise)
        self._tokenizer = IncrementalTokenizer(tokenizer)
        self._fragments: list[str] = []
        self._said: list[str] = []
        """What went to the tokenizer, as far as it is still needed..."""
        self._ends: list[int] = []
        """...and of each of its characters, where it ends in the source."""
        self._dropped = 0
        """Characters before those."""
        self._given = 0
        """Characters whose tokens were given out."""
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

    def check(self, fragment: str) -> None:
        """Raises TextTooLong when there is no room for it."""
        if (received := self.characters + len(fragment)) > self._max_characters:
            raise TextTooLong(self._max_characters, received)

    def push(self, fragment: str) -> list[SpeechToken]:
        """Accept a fragment and return the tokens it settles. Raises TextTooLong, taking nothing of it."""
        self.check(fragment)
        self._fragments.append(fragment)
        self.characters += len(fragment)
        return self._speech(self._tokenizer.push(self._say(self._form.push(self._sanitizer.push(fragment)))))

    def flush(self) -> list[SpeechToken]:
        """Settle all text accepted so far, closing mark included; what follows begins a new piece of text."""
        said = self._say(self._form.push(self._sanitizer.flush())) + self._say(self._form.flush())
        return self._speech(self._tokenizer.push(said) + self._tokenizer.flush(trim=True))

    def end(self) -> list[SpeechToken]:
        """No more text comes: settle the rest. Raises EmptyText when the whole utterance yields no token."""
        tokens = self.flush()
        if not self.tokens:
            raise EmptyText("there is nothing to say in this text")
        return tokens

    def _say(self, text: SourceMappedText) -> str:
        """Keep what goes to the tokenizer until its tokens have come out."""
        self._said.append(text.text)
        self._ends += text.ends
        return text.text

    def _speech(self, tokens: list[Token]) -> list[SpeechToken]:
        if not tokens:
            return []
        self.tokens += len(tokens)
        said, start = "".join(self._said), self._dropped
        speech = []
        for token in tokens:
            at = token.end - start
            blank = said[self._given - start : at].isspace()  # the sentence ended before it
            ended = not blank and ends_sentence(said, at)
            speech.append(SpeechToken(token.id, self._ends[max(at, 1) - 1], ended))
            self._given = token.end
        # A sentence's end is judged by a few characters before it.
        spare = max(0, self._given - start - LOOK_BACK_CHARACTERS)
        self._said, self._dropped = [said[spare:]], start + spare
        del self._ends[:spare]
        return speech


def _form(rules: TextRules, normalise: str | None) -> SpokenForm | Normaliser | Verbatim:
    if rules.spoken_form:
        return SpokenForm(rules.closing_mark)
    if normalise is not None and can_normalise(normalise):
        return Normaliser(normalise, rules.closing_mark)
    return Verbatim(rules.closing_mark)
