"""Text normalisation: spells out written expressions of a text from fragments.

Decides on one written word at a time: a word is held back until the next character is known, and a number until the
next word shows whether it belongs to the number ("5 km", "$5 million", "12 May"). All other text passes unchanged.
"""

# ruff: noqa: RUF001 - punctuation beyond ASCII is the subject here.
from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from ..source_map import EMPTY, SourceMappedText, SourceMapWriter
from ..spoken_form import Verbatim
from .phrases import PHRASES
from .verbaliser import Verbaliser

MAX_WORD_CHARACTERS = 128
"""A longer run without white space is split here and passes unchanged."""

AUTO = "auto"
_LANGUAGE_OF_SCRIPT = {
    "CYRILLIC": "russian",
    "HANGUL": "korean",
    "HIRAGANA": "japanese",
    "KATAKANA": "japanese",
    "CJK": "chinese",
}
_MARKS_BEFORE_WORD = "([{\"'“‘„«»¿¡「『（《"
_MARKS_AFTER_WORD = ")]}\"'”’»«」』）》,;:!?…、。，；：！？"
_WIDE_MARKS = frozenset("、。，；：！？「」『』（）《》…")
_FOLLOWER = re.compile(r"[^\s.,;:!?)\]}\"'”’»…、。，；：！？]*")
_AREA_CODE = re.compile(r"\(\d{3}\)")
_SUBSCRIBER_NUMBER = "000-0000"
"""The digits after an area code, 0 for any digit."""
_YEAR_SIGNS = ("年", "년")
"""Signs after a year in Chinese, Japanese and Korean."""


def can_normalise(language: str) -> bool:
    """Whether `language` is supported; "auto" is."""
    return language == AUTO or _base_language(language) in PHRASES


class Normaliser:
    """A `TextForm` that normalises one text in a language of `PHRASES`, or in "auto".

    For "auto", the script of the first letter selects Russian, Korean, Japanese (kana) or Chinese, otherwise English.
    """

    def __init__(self, language: str, closing_mark: str = "") -> None:
        self._fixed = None if language == AUTO else _verbaliser(_base_language(language))
        """The verbaliser of a given language, None for "auto"."""
        self._verbaliser = self._fixed or _verbaliser("english")
        self._chosen = self._fixed is not None
        self._closing = Verbatim(closing_mark)
        self._out = SourceMapWriter()
        self._tail = ""
        """Text that is held back."""
        self._ends: list[int] = []
        """Source offset that each of its characters reaches to."""
        self._follows_month = False
        """Whether the last word was a month's name."""

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Accept a fragment; returns the output that is final."""
        self._tail += text.text
        self._ends += text.ends
        if not self._chosen and not self._choose_language():
            return EMPTY
        return self._closing.push(self._take(final=False))

    def flush(self) -> SourceMappedText:
        """End the text; returns the rest of the output, with the closing mark. The next `push` begins a new text."""
        if not self._chosen:
            self._choose_language()
        rest = self._closing.push(self._take(final=True))
        mark = self._closing.flush()
        self._follows_month = False
        self._chosen = self._fixed is not None
        return SourceMappedText(rest.text + mark.text, rest.ends + mark.ends)

    def _choose_language(self) -> bool:
        """Choose the language by the first letter; returns False if there is none yet."""
        letter = next(filter(str.isalpha, self._tail[:MAX_WORD_CHARACTERS]), None)
        if letter is None and len(self._tail) < MAX_WORD_CHARACTERS:
            return False
        script = unicodedata.name(letter or "A", "").partition(" ")[0]
        self._verbaliser = _verbaliser(_LANGUAGE_OF_SCRIPT.get(script, "english"))
        self._chosen = True
        return True

    def _take(self, *, final: bool) -> SourceMappedText:
        begin = 0
        while begin < len(self._tail) and (end := self._say_next(begin, final=final)) is not None:
            begin = end
        self._tail = self._tail[begin:]
        del self._ends[:begin]
        return self._out.take()

    def _say_next(self, begin: int, *, final: bool) -> int | None:
        """Write the output for the word at `begin`; returns where it ends, None while more text could change it."""
        tail = self._tail
        if _stands_alone(tail[begin]):
            self._pass(begin, begin + 1)
            return begin + 1
        limit = min(len(tail), begin + MAX_WORD_CHARACTERS)
        end = next((at for at in range(begin, limit) if _stands_alone(tail[at])), limit)
        if end == len(tail) and not final and end - begin < MAX_WORD_CHARACTERS:
            return None
        if end - begin == MAX_WORD_CHARACTERS:
            self._pass(begin, end)
            return end
        if (is_area_code := self._is_area_code(begin, end, final=final)) is not False:
            if is_area_code:
                spoken = self._verbaliser.spell(tail[begin + 1 : end - 1])
                self._replace(begin, begin + 1, end - 1, end, spoken)
            return end if is_area_code else None
        first, last = _strip_marks(tail, begin, end)
        expression_end = self._expression_end(first, last, end, final=final)
        if expression_end is None:
            return None
        self._say(begin, first, last, end, expression_end)
        return max(end, expression_end)

    def _is_area_code(self, begin: int, end: int, *, final: bool) -> bool | None:
        """Whether the word begins a telephone number such as "(555) 123-4567"; None while that is unknown."""
        if not _AREA_CODE.fullmatch(self._tail, begin, end) or (end < len(self._tail) and self._tail[end] != " "):
            return False
        rest = self._tail[end + 1 : end + 1 + len(_SUBSCRIBER_NUMBER)]
        if re.sub(r"\d", "0", rest) != _SUBSCRIBER_NUMBER[: len(rest)]:
            return False
        if len(rest) == len(_SUBSCRIBER_NUMBER):
            return True
        return False if final else None

    def _expression_end(self, first: int, last: int, end: int, *, final: bool) -> int | None:
        """Where the expression that begins at `first` ends: at `last` or after the next word; None while unknown."""
        tail = self._tail
        if not any(map(str.isdigit, tail[first:last])):
            unknown = end + 1 >= len(tail) and not final and self._depends_on_next(first, last, end)
            return None if unknown else last
        if end < len(tail) and tail[end] in self._verbaliser.phrases.magnitudes and last == end:
            return end + 1
        ordinal = tail[last:end] == "." and self._verbaliser.phrases.locale == "de"
        if end == len(tail) or tail[end] != " " or (last != end and not ordinal):
            return last
        found = _FOLLOWER.match(tail, end + 1)
        assert found is not None, "the pattern matches the empty string"
        word, known = found[0], self._verbaliser.followers
        if found.end() == len(tail) and not final:
            prefixes = (word, word.lower())
            return None if any(name.startswith(prefixes) for name in known) else last
        if word not in known and word.lower() not in known:
            return last
        period = word.lower() in self._verbaliser.months and tail[found.end() : found.end() + 1] == "."
        return found.end() + (period and len(word) <= 5)

    def _depends_on_next(self, first: int, last: int, end: int) -> bool:
        """Whether the word is an abbreviation whose meaning depends on the next word."""
        phrases, written = self._verbaliser.phrases, self._tail[first : min(last + 1, end)].lower()
        return written in phrases.before_numbers or written in phrases.before_names

    def _expand_abbreviation(self, first: int, stop: int, end: int) -> str | None:
        """The words for an abbreviation with its period, None for any other word."""
        phrases, written = self._verbaliser.phrases, self._tail[first:stop].lower()
        next_character = self._tail[end + 1 : end + 2] if stop == end else ""
        if next_character.isdigit() and (spoken := phrases.before_numbers.get(written)) is not None:
            return spoken
        if next_character.isupper() and (spoken := phrases.before_names.get(written)) is not None:
            return spoken
        return phrases.abbreviations.get(written)

    def _say(self, begin: int, first: int, last: int, end: int, expression_end: int) -> None:
        """Write the output for the word from `begin` to `end`, `first` to `last` without its punctuation.

        It includes the next word if the expression extends beyond the word, to `expression_end`.
        """
        tail, say = self._tail, self._verbaliser.say
        follows_month = self._follows_month and self._verbaliser.phrases.month_first
        if expression_end > last:
            blank = "" if tail[end] == " " else " "  # a magnitude written as a sign is treated as a word
            spoken = say(tail[first:end] + blank + tail[end:expression_end], follows_month=follows_month)
            if spoken is not None:
                self._replace(begin, first, expression_end, expression_end, spoken)
                return
        # The period of an abbreviation is part of it.
        stop = min(last + 1, end)
        spoken = self._expand_abbreviation(first, stop, end)
        if spoken is None and first < last:
            stop = last
            spoken = say(tail[first:last], follows_month=follows_month, is_year=tail[end : end + 1] in _YEAR_SIGNS)
        if spoken is not None:
            self._replace(begin, first, stop, end, spoken)
        else:
            self._pass(begin, end)
        self._follows_month = tail[first:last].lower() in self._verbaliser.months
        if expression_end > max(last, end):
            self._pass(end, expression_end)

    def _replace(self, begin: int, first: int, last: int, end: int, spoken: str) -> None:
        """Write `spoken` for the text from `first` to `last`, and the punctuation around it unchanged."""
        self._pass(begin, first)
        size = last - first
        for n, char in enumerate(spoken, 1):
            self._out.add(char, self._ends[first + -(-n * size // len(spoken)) - 1])
        rest = last
        if rest < end and spoken.endswith(".") and self._tail[rest] == ".":
            rest += 1
        self._pass(rest, end)
        self._follows_month = False

    def _pass(self, begin: int, end: int) -> None:
        """Write the text from `begin` to `end` unchanged."""
        for at in range(begin, end):
            self._out.add(self._tail[at], self._ends[at])


def _base_language(language: str) -> str:
    """The language itself, and Chinese for its dialects, which are written alike."""
    return "chinese" if language.endswith("_dialect") else language


@lru_cache
def _verbaliser(language: str) -> Verbaliser:
    return Verbaliser(language)


def _strip_marks(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without leading and trailing punctuation."""
    first, last = begin, end
    while first < last and text[first] in _MARKS_BEFORE_WORD:
        first += 1
    while last > first and (text[last - 1] in _MARKS_AFTER_WORD or text[last - 1] == "."):
        last -= 1
    return first, last


def _stands_alone(char: str) -> bool:
    """Whether a character is a word by itself: white space, and letters and marks of scripts without case.

    Those scripts have no blanks between words.
    """
    return char.isspace() or char in _WIDE_MARKS or (unicodedata.category(char) in ("Lo", "Lm") and char not in "ºª")
