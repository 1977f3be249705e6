"""A lexicon: terms with their spoken forms, compiled so that a text is searched for all of them at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_TERM_CHARACTERS = 48
"""Longest term: so much text is held back at most, and looked at from each character."""
MAX_SPOKEN_CHARACTERS = 128
MAX_RULES = 1000
"""Most rules of a lexicon that a client makes: compiling as many of the longest terms takes about 10 ms."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
"""Characters that are neither written nor blank, and cannot stand in XML."""

PHONEMES_UNSUPPORTED = (
    "phonemes (IPA, CMU) are not supported, because the model reads letters: give an alias, such as 'sequel' for 'SQL'"
)


@dataclass(frozen=True, slots=True)
class LexiconRule:
    """One entry: what is spoken for a term. Raises ValueError for a term or a form outside the limits.

    `word_boundaries`: whether the term is found only as whole words; in scripts without blanks, such as Chinese, every
    character counts as a word.
    """

    term: str
    spoken: str
    case_sensitive: bool = False
    word_boundaries: bool = True

    def __post_init__(self) -> None:
        for name, text, limit in (
            ("term", self.term, MAX_TERM_CHARACTERS),
            ("spoken form", self.spoken, MAX_SPOKEN_CHARACTERS),
        ):
            if not text.strip():
                raise ValueError(f"the {name} of a pronunciation must not be blank")
            if (control := _CONTROL.search(text)) is not None:
                raise ValueError(
                    f"the {name} of a pronunciation must not contain control characters, got {control[0]!r}"
                )
            if len(text) > limit:
                raise ValueError(f"the {name} of a pronunciation must have at most {limit} characters, got {len(text)}")


@dataclass(frozen=True, slots=True)
class Match:
    """A term found in a text; `end` is the offset behind it."""

    rule: LexiconRule
    end: int


_Node = dict[str, Any]
"""A node of a trie: its children by character, and at _RULE the rule whose term ends here."""
_RULE = ""


class Lexicon:
    """Rules in two tries of characters. Of rules for the same term, in the same case, the first counts. Immutable."""

    def __init__(self, rules: Iterable[LexiconRule]) -> None:
        self._exact: _Node = {}
        self._any_case: _Node = {}
        self._inside_words = False
        """Whether a term may begin within a word."""
        digest = hashlib.sha256()
        for rule in rules:
            digest.update(repr(rule).encode())
            node = self._exact if rule.case_sensitive else self._any_case
            term = rule.term.strip()
            for char in fold_blanks(term) if rule.case_sensitive else fold(term):
                node = node.setdefault(char, {})
            node.setdefault(_RULE, rule)
            self._inside_words |= not rule.word_boundaries
        self.digest = digest.hexdigest()
        """Of the rules, in hexadecimal: equal lexica have equal ones."""

    def __bool__(self) -> bool:
        """Whether it has a rule."""
        return bool(self._exact or self._any_case)

    def find(self, text: SearchText, at: int, before: str, *, final: bool) -> Match | bool:
        """The longest term that begins at offset `at`; False for none.

        `before`: the character before it, "" at the beginning. True if that depends on text that may follow, unless the
        text is `final`. Of equally long terms the case-sensitive one counts. Looks at no more than
        MAX_TERM_CHARACTERS + 1 characters.
        """
        original = text.original
        within = joins(before, original[at])
        if within and not self._inside_words:
            return False
        best: Match | None = None
        length = len(original)
        for root, chars in ((self._exact, text.exact), (self._any_case, text.any_case)):
            node, end = root, at
            while end < length:
                if (following := node.get(chars[end])) is None:
                    break
                node, end = following, end + 1
                rule = node.get(_RULE)
                if rule is None or (best is not None and end <= best.end):
                    continue
                if rule.word_boundaries:
                    if within:
                        continue
                    if end == length and not final and is_word(original[end - 1]):
                        return True
                    if end < length and joins(original[end - 1], original[end]):
                        continue
                best = Match(rule, end)
            else:
                if not final and len(node) > (_RULE in node):
                    return True
        return best or False


@dataclass(frozen=True, slots=True)
class SearchText:
    """A text in the forms that are searched, which have equally many characters."""

    original: str
    exact: str
    any_case: str

    @classmethod
    def of(cls, text: str) -> SearchText:
        return cls(text, fold_blanks(text), fold(text))


def joins(left: str, right: str) -> bool:
    """Whether no word ends between two characters."""
    return is_word(left) and is_word(right)


def is_word(char: str) -> bool:
    """Whether a character is part of a word that blanks or marks separate from others; False for ""."""
    return (char.isalnum() or char == "_") and not any(first <= char <= last for first, last in _UNSPACED)


_UNSPACED = (
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # Hiragana, Katakana
    ("\u3400", "\u9fff"),  # Han
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
)
"""Ranges of scripts that write no blanks between words."""


def fold_blanks(text: str) -> str:
    """The text with a blank for any white space, so that a line break may stand in a term of several words."""
    return re.sub(r"\s", " ", text)


def fold(text: str) -> str:
    """The text without case, with equally many characters."""
    folded = fold_blanks(text).casefold()
    if len(folded) == len(text):
        return folded
    return "".join(each if len(each := char.casefold()) == 1 else char for char in fold_blanks(text))
