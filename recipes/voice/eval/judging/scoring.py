"""Word errors of a transcript: Levenshtein alignment of the words, in their spoken form."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..plan import spoken as spoken_form
from ..plan import words

_VARIANTS = {"alright": "all right", "ok": "okay", "mr": "mister", "mrs": "missus", "ms": "miss", "email": "e mail"}
"""Spellings that the judge and the spoken form write differently."""
_MONTHS = {
    **{"jan": "january", "feb": "february", "mar": "march", "apr": "april", "aug": "august", "sept": "september"},
    **{"sep": "september", "oct": "october", "nov": "november", "dec": "december"},
}
_TIME = re.compile(r"(?<![$€£.,:\d])\b(1?\d|2[0-4])[.:]?([0-5]\d)\b(?![.,]?\d)")
_ADDRESS_DOT = re.compile(r"(?<=[a-z])\.(?=[a-z]{2})", re.IGNORECASE)
_LETTERS_AND_DIGITS = re.compile(r"\b(?=\w*\d)(?=\w*[a-z])\w+\b", re.IGNORECASE)
_MOST_REPEATED = 4
_SPOKEN_WHOLE = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|a|p)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Score:
    """`errors`: substitutions, deletions and insertions. `kept`: words of the text that were recognised, in order."""

    words: int
    errors: int
    kept: int


def score(spoken: str, transcript: str) -> Score:
    """Align a text in its spoken form with a transcript as the judge writes it, in its best reading."""
    scores = [_aligned(_folded(spoken), _folded(reading)) for reading in readings(transcript)]
    return min(scores, key=lambda one: (one.errors, -one.kept))


def said_twice(spoken: str, transcript: str) -> tuple[str, ...]:
    """Words, or up to four together, that a transcript repeats at once and that the text has only once in a row."""
    of_text = repeated(spoken)
    found = [tuple(of for of in repeated(reading) if of not in of_text) for reading in readings(transcript)]
    return min(found, key=len)


def repeated(text: str) -> dict[str, None]:
    """All runs of one to four words that follow themselves."""
    words = _folded(text)
    runs: dict[str, None] = {}
    for length in range(1, _MOST_REPEATED + 1):
        for at in range(len(words) - 2 * length + 1):
            if words[at : at + length] == words[at + length : at + 2 * length]:
                runs[" ".join(words[at : at + length])] = None
    return runs


def readings(transcript: str) -> tuple[str, ...]:
    """The spoken forms of a transcript.

    The judge writes numbers as digits, times of day with a point, with a colon or as one number, months shortened, and
    codes and addresses as one word.
    """
    text = _ADDRESS_DOT.sub(" dot ", transcript.replace("@", " at ").replace("_", " underscore "))
    text = re.sub(r"\b([A-Z][a-z]{2,3})\.? (?=\d)", lambda found: f"{_month(found[1])} ", text)
    text = _LETTERS_AND_DIGITS.sub(_apart, text)
    return tuple(dict.fromkeys(spoken_form(written) for written in (text, _TIME.sub(r"\1:\2", text))))


def _month(word: str) -> str:
    return _MONTHS.get(word.lower(), word)


def _apart(found: re.Match[str]) -> str:
    """Letters and digits apart, unless the word is an ordinal, a time or a decade."""
    return found[0] if _SPOKEN_WHOLE.fullmatch(found[0]) else " ".join(found[0])


def _aligned(expected: list[str], got: list[str]) -> Score:
    """Fewest errors, then most words kept."""
    # Pairs of cost and negative number of kept words: the smaller pair is better.
    row = [(n, 0) for n in range(len(got) + 1)]
    for i, want in enumerate(expected, 1):
        above, row = row, [(i, 0)]
        for j, word in enumerate(got, 1):
            same = want == word
            row.append(
                min(
                    (above[j - 1][0] + (not same), above[j - 1][1] - same),
                    (above[j][0] + 1, above[j][1]),
                    (row[j - 1][0] + 1, row[j - 1][1]),
                )
            )
    errors, kept = row[-1]
    return Score(len(expected), errors, -kept)


def _folded(spoken: str) -> list[str]:
    """The words, with runs of single letters joined: whether letters are written apart cannot be heard."""
    separate = [part for word in words(spoken) for part in _VARIANTS.get(word, word).replace("'", "").split()]
    joined: list[str] = []
    after_letter = False
    for word in separate:
        if len(word) == 1 and after_letter:
            joined[-1] += word
        else:
            joined.append(word)
        after_letter = len(word) == 1
    return joined
