"""Written expressions become words as the text comes in; what comes out does not depend on how it was cut.

What is decided on is one written word: it is held back until the character after it is known, and a number until the
next word has shown that it does not belong to it ("5 km", "$5 million", "12 May"). Everything else passes as it is.
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
"""A longer run without white space is cut here, and read as it is written."""

AUTO = "auto"
_LANGUAGE_OF_SCRIPT = {
    "CYRILLIC": "russian",
    "HANGUL": "korean",
    "HIRAGANA": "japanese",
    "KATAKANA": "japanese",
    "CJK": "chinese",
}
_OPENERS = "([{\"'“‘„«»¿¡「『（《"
_CLOSERS = ")]}\"'”’»«」』）》,;:!?…、。，；：！？"
_WIDE_MARKS = frozenset("、。，；：！？「」『』（）《》…")
_FOLLOWER = re.compile(r"[^\s.,;:!?)\]}\"'”’»…、。，；：！？]*")
_AREA_CODE = re.compile(r"\(\d{3}\)")
_SUBSCRIBER = "000-0000"
"""What follows an area code, 0 for any digit."""
_YEAR_SIGNS = ("年", "년")


def can_normalise(language: str) -> bool:
    """Whether texts in `language` can be normalised; "auto" can."""
    return language == AUTO or _base(language) in PHRASES


class Normaliser:
    """One text in one language of `normal.phrases`, or in "auto": the one that its first letter suggests.

    The first letter tells Russian, Korean, Japanese kana and Chinese apart; any other begins an English text.
    """

    def __init__(self, language: str, closing_mark: str = "") -> None:
        self._given = None if language == AUTO else _verbaliser(_base(language))
        self._verbaliser = self._given or _verbaliser("english")
        self._chosen = self._given is not None
        self._verbatim = Verbatim(closing_mark)
        self._out = SourceMapWriter()
        self._tail = ""
        self._ends: list[int] = []
        self._follows_month = False

    def push(self, text: SourceMappedText) -> SourceMappedText:
        """Take in a fragment; returns what is now certain."""
        self._tail += text.text
        self._ends += text.ends
        if not self._chosen and not self._choose():
            return EMPTY
        return self._verbatim.push(self._take(final=False))

    def flush(self) -> SourceMappedText:
        """Complete the text, with a closing mark where one is wanted; then a new one begins."""
        if not self._chosen:
            self._choose()
        rest = self._verbatim.push(self._take(final=True))
        mark = self._verbatim.flush()
        self._follows_month = False
        self._chosen = self._given is not None
        return SourceMappedText(rest.text + mark.text, rest.ends + mark.ends)

    def _choose(self) -> bool:
        letter = next(filter(str.isalpha, self._tail[:MAX_WORD_CHARACTERS]), None)
        if letter is None and len(self._tail) < MAX_WORD_CHARACTERS:
            return False
        script = unicodedata.name(letter or "A", "").partition(" ")[0]
        self._verbaliser = _verbaliser(_LANGUAGE_OF_SCRIPT.get(script, "english"))
        self._chosen = True
        return True

    def _take(self, *, final: bool) -> SourceMappedText:
        begin = 0
        while begin < len(self._tail) and (end := self._next(begin, final=final)) is not None:
            begin = end
        self._tail = self._tail[begin:]
        del self._ends[:begin]
        return self._out.take()

    def _next(self, begin: int, *, final: bool) -> int | None:
        """Say what stands at `begin`; returns where it ends, None while more text could change it."""
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
        if (dialled := self._is_area_code(begin, end, final=final)) is not False:
            if dialled:
                said = self._verbaliser.spell(tail[begin + 1 : end - 1])
                self._put(begin, begin + 1, end - 1, end, said)
            return end if dialled else None
        first, last = _without_marks(tail, begin, end)
        reach = self._reach(first, last, end, final=final)
        if reach is None:
            return None
        self._say(begin, first, last, end, reach)
        return max(end, reach)

    def _is_area_code(self, begin: int, end: int, *, final: bool) -> bool | None:
        """Whether it is the beginning of a number as "(555) 123-4567"; None if unknown yet."""
        if not _AREA_CODE.fullmatch(self._tail, begin, end) or (end < len(self._tail) and self._tail[end] != " "):
            return False
        rest = self._tail[end + 1 : end + 1 + len(_SUBSCRIBER)]
        if re.sub(r"\d", "0", rest) != _SUBSCRIBER[: len(rest)]:
            return False
        if len(rest) == len(_SUBSCRIBER):
            return True
        return False if final else None

    def _reach(self, first: int, last: int, end: int, *, final: bool) -> int | None:
        """Where an expression that begins at `first` ends: at `last` or after the next word; None if unknown yet."""
        tail = self._tail
        if not any(map(str.isdigit, tail[first:last])):
            unknown = end + 1 >= len(tail) and not final and self._depends(first, last, end)
            return None if unknown else last
        if end < len(tail) and tail[end] in self._verbaliser.phrases.magnitudes and last == end:
            return end + 1
        ordinal = tail[last:end] == "." and self._verbaliser.phrases.locale == "de"
        if end == len(tail) or tail[end] != " " or (last != end and not ordinal):
            return last
        found = _FOLLOWER.match(tail, end + 1)
        assert found is not None, "it matches nothing, too"
        word, known = found[0], self._verbaliser.followers
        if found.end() == len(tail) and not final:
            beginnings = (word, word.lower())
            return None if any(name.startswith(beginnings) for name in known) else last
        if word not in known and word.lower() not in known:
            return last
        short = word.lower() in self._verbaliser.months and tail[found.end() : found.end() + 1] == "."
        return found.end() + (short and len(word) <= 5)

    def _depends(self, first: int, last: int, end: int) -> bool:
        """Whether it is an abbreviation that what follows decides about."""
        phrases, written = self._verbaliser.phrases, self._tail[first : min(last + 1, end)].lower()
        return written in phrases.before_numbers or written in phrases.before_names

    def _abbreviated(self, first: int, stop: int, end: int) -> str | None:
        """What an abbreviation with its period stands for."""
        phrases, written = self._verbaliser.phrases, self._tail[first:stop].lower()
        follows = self._tail[end + 1 : end + 2] if stop == end else ""
        if follows.isdigit() and (said := phrases.before_numbers.get(written)) is not None:
            return said
        if follows.isupper() and (said := phrases.before_names.get(written)) is not None:
            return said
        return phrases.abbreviations.get(written)

    def _say(self, begin: int, first: int, last: int, end: int, reach: int) -> None:
        tail, say = self._tail, self._verbaliser.say
        follows_month = self._follows_month and self._verbaliser.phrases.month_first
        if reach > last:
            blank = "" if tail[end] == " " else " "  # a sign of a magnitude is read like a word
            said = say(tail[first:end] + blank + tail[end:reach], follows_month=follows_month)
            if said is not None:
                self._put(begin, first, reach, reach, said)
                return
        # An abbreviation's period is part of it.
        stop = min(last + 1, end)
        said = self._abbreviated(first, stop, end)
        if said is None and first < last:
            stop = last
            said = say(tail[first:last], follows_month=follows_month, is_year=tail[end : end + 1] in _YEAR_SIGNS)
        if said is not None:
            self._put(begin, first, stop, end, said)
        else:
            self._pass(begin, end)
        self._follows_month = tail[first:last].lower() in self._verbaliser.months
        if reach > max(last, end):
            self._pass(end, reach)

    def _put(self, begin: int, first: int, last: int, end: int, said: str) -> None:
        """What was written from `first` to `last` as `said`, and the punctuation around it as it is."""
        self._pass(begin, first)
        size = last - first
        for n, char in enumerate(said, 1):
            self._out.add(char, self._ends[first + -(-n * size // len(said)) - 1])
        rest = last
        if rest < end and said.endswith(".") and self._tail[rest] == ".":
            rest += 1
        self._pass(rest, end)
        self._follows_month = False

    def _pass(self, begin: int, end: int) -> None:
        for at in range(begin, end):
            self._out.add(self._tail[at], self._ends[at])


def _base(language: str) -> str:
    """Dialects are written as Chinese is."""
    return "chinese" if language.endswith("_dialect") else language


@lru_cache
def _verbaliser(language: str) -> Verbaliser:
    return Verbaliser(language)


def _without_marks(text: str, begin: int, end: int) -> tuple[int, int]:
    first, last = begin, end
    while first < last and text[first] in _OPENERS:
        first += 1
    while last > first and (text[last - 1] in _CLOSERS or text[last - 1] == "."):
        last -= 1
    return first, last


def _stands_alone(char: str) -> bool:
    """White space, and letters and marks of scripts without case, which have no blanks between words."""
    return char.isspace() or char in _WIDE_MARKS or (unicodedata.category(char) in ("Lo", "Lm") and char not in "ºª")
