"""Where one sentence ends and another can begin."""

# ruff: noqa: RUF001, SIM905 - punctuation beyond ASCII and lists of words are the subject here.
from __future__ import annotations

import re

_WIDE = re.compile(r"[。！？｡…]+[”’」』）】》]*$")
_NARROW = re.compile(r"([.?!]+)[\"'”’)\]]*$")
_WORD = re.compile(r"[\w.]*$")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e a.m p.m fig approx dept inc ltd co"
    " jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
LOOK_BACK = 24
"""Characters before a place that decide on it."""


def ends_sentence(text: str, at: int) -> bool:
    """Whether a sentence of `text` ends at offset `at`, judged by what stands before it and the character
    after it.

    Chinese and Japanese marks end it by themselves; `.`, `?` and `!` only before white space, and a period
    not after an abbreviation, an initial, or a number that begins a line.
    """
    if at >= len(text):
        return False
    before = text[max(0, at - LOOK_BACK) : at]
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
