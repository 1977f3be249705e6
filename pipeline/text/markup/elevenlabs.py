"""ElevenLabs' audio tags: `[laughs]`, `[whispers]`, `[short pause]`. `<break>` and `<phoneme>` are those of SSML."""

from __future__ import annotations

from collections.abc import Mapping

import regex

from .rule import Found, Rule
from .writer import MarkupWriter

MAX_TAG_CHARACTERS = 52
"""Longest audio tag, brackets included."""
_PAUSES_MS: Mapping[str, int] = {"short pause": 250, "pause": 500, "long pause": 1000}


def _apply(found: Found, out: MarkupWriter) -> None:
    ms = _PAUSES_MS.get(found.match[1].lower())
    if ms is None:
        out.ignore("an audio tag in square brackets")
        out.separate(found.start, found.end)
    else:
        out.pause(ms, found.start, found.end)


RULES = (
    # Any words may be a tag. Digits are none ("[1]"), nor are a box ("[x]") and the text of a link.
    Rule("[", regex.compile(r"\[([A-Za-z][A-Za-z ,'’-]++)\](?=[^(\[])"), _apply, limit=MAX_TAG_CHARACTERS),  # noqa: RUF001
)
