"""The text of one utterance, from the client's fragments to tokens for the talker, with sentence ends marked."""

# ruff: noqa: RUF001, SIM905 - punctuation beyond ASCII and lists of words are the subject here.
from __future__ import annotations

import re
from dataclasses import dataclass

from ..checkpoint.voice_config import TextRules
from ..errors import EmptyText, TextTooLong
from .incremental_tokenizer import IncrementalTokenizer, Token
from .normalise.normaliser import Normaliser, can_normalise
from .sanitize import Sanitizer
from .source_map import SourceMappedText, TextForm
from .spoken_form import SpokenForm, Verbatim
from .tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True)
class SpeechToken:
    """A final text token for the talker.

    `source_end` is the offset in the client's text that it reaches to; it never decreases. `sentence_end`: a new
    generation may begin after it. The talker may also begin one after a flush.
    """

    id: int
    source_end: int
    sentence_end: bool


class UtteranceText:
    """Sanitises the text of one utterance, brings it into the voice's form, and tokenises it.

    The tokens do not depend on how the text is split into fragments.
    """

    def __init__(
        self, rules: TextRules, tokenizer: TextTokenizer, max_characters: int, normalise: str | None = None
    ) -> None:
        """`normalise`: language in which to spell out numbers and the like, unless the voice has a spoken form."""
        self.max_characters = max_characters
        self._sanitizer = Sanitizer(tokenizer.control_tokens, trim=rules.trim)
        self._trim = rules.trim
        self._form = _make_form(rules, normalise)
        self._tokenizer = IncrementalTokenizer(tokenizer)
        self._fragments: list[str] = []
        self._tokenised: list[str] = []
        """The end of the text given to the tokenizer, from `_first_kept` on."""
        self._ends: list[int] = []
        """Offset in the client's text that each of its characters reaches to."""
        self._first_kept = 0
        """Characters given to the tokenizer before `_tokenised`."""
        self._final = 0
        """Characters given to the tokenizer whose tokens were returned."""
        self.characters = 0
        """Characters of text accepted so far."""
        self.tokens = 0
        """Tokens returned so far."""

    @property
    def source(self) -> str:
        """All text accepted so far, as the client sent it."""
        if len(self._fragments) > 1:
            self._fragments = ["".join(self._fragments)]
        return self._fragments[0] if self._fragments else ""

    def push(self, fragment: str) -> list[SpeechToken]:
        """Accept a fragment; returns the tokens that became final. Raises TextTooLong, accepting nothing."""
        if (received := self.characters + len(fragment)) > self.max_characters:
            raise TextTooLong(self.max_characters, received)
        return self.append(fragment)

    def append(self, fragment: str) -> list[SpeechToken]:
        """As `push`, of text whose length was limited before."""
        self._fragments.append(fragment)
        self.characters += len(fragment)
        return self._speech_tokens(self._tokenizer.push(self._keep(self._form.push(self._sanitizer.push(fragment)))))

    def flush(self) -> list[SpeechToken]:
        """Return the tokens of all text accepted so far, closing mark included; later text begins a new text."""
        rest = self._keep(self._form.push(self._sanitizer.flush())) + self._keep(self._form.flush())
        return self._speech_tokens(self._tokenizer.push(rest) + self._tokenizer.flush(trim=self._trim))

    def end(self) -> list[SpeechToken]:
        """End the text; returns the remaining tokens. Raises EmptyText when the utterance has no tokens at all."""
        tokens = self.flush()
        if not self.tokens:
            raise EmptyText("the text contains nothing to say")
        return tokens

    def _keep(self, text: SourceMappedText) -> str:
        """Keep what the tokenizer receives until its tokens are final."""
        self._tokenised.append(text.text)
        self._ends += text.ends
        return text.text

    def _speech_tokens(self, tokens: list[Token]) -> list[SpeechToken]:
        if not tokens:
            return []
        self.tokens += len(tokens)
        kept, start = "".join(self._tokenised), self._first_kept
        speech_tokens = []
        for token in tokens:
            at = token.end - start
            # A sentence ended before a token of white space, not at it.
            is_blank = kept[self._final - start : at].isspace()
            sentence_end = not is_blank and ends_sentence(kept, at)
            speech_tokens.append(SpeechToken(token.id, self._ends[max(at, 1) - 1], sentence_end))
            self._final = token.end
        # Sentence ends depend on a few characters before them.
        unneeded = max(0, self._final - start - LOOK_BACK_CHARACTERS)
        self._tokenised, self._first_kept = [kept[unneeded:]], start + unneeded
        del self._ends[:unneeded]
        return speech_tokens


def _make_form(rules: TextRules, normalise: str | None) -> TextForm:
    if rules.spoken_form:
        return SpokenForm(rules.closing_mark)
    if normalise is not None and can_normalise(normalise):
        return Normaliser(normalise, rules.closing_mark)
    return Verbatim(rules.closing_mark)


LOOK_BACK_CHARACTERS = 24
"""Characters before an offset that `ends_sentence` considers."""

_WIDE_END = re.compile(r"[。！？｡…]+[”’」』）】》]*$")
_NARROW_END = re.compile(r"([.?!]+)[\"'”’)\]]*$")
_LAST_WORD = re.compile(r"[\w.]*$")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e a.m p.m fig approx dept inc ltd co"
    " jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
"""English words that a period follows within a sentence; independent of what is said for them."""


def ends_sentence(text: str, at: int) -> bool:
    """Whether a sentence of `text` ends at offset `at`, by the characters before it and the one after it.

    Chinese and Japanese marks always end a sentence. `.`, `?` and `!` end it only before white space, and a period not
    after an abbreviation, an initial, or a number at the beginning of a line.
    """
    if at >= len(text):
        return False
    before = text[max(0, at - LOOK_BACK_CHARACTERS) : at]
    blanks = len(before) - len(before.rstrip())
    before = before.rstrip()
    if _WIDE_END.search(before) and not re.match(r"[。！？｡…”’」』）】》]", text[at]):
        return True
    marks = _NARROW_END.search(before)
    if marks is None or not (blanks or text[at].isspace()):
        return False
    if marks[1] != ".":
        return True
    found = _LAST_WORD.search(before[: marks.start()])
    word = found[0] if found else ""
    if word.isdigit() and len(word) <= 2:
        line = before[: marks.start() - len(word)]
        return bool(line.rstrip(" ")) and not line.endswith("\n")
    return len(word) > 1 and word.lower() not in _ABBREVIATIONS and not re.fullmatch(r"(?:\w\.)+\w", word)
