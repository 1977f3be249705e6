"""Rime: `<750>` is a pause of 750 ms."""

from __future__ import annotations

import regex

from .rule import Found, Rule
from .writer import MarkupWriter


def _pause(found: Found, out: MarkupWriter) -> None:
    out.pause(int(found.match[1]), found.start, found.end)


RULES = (Rule("<", regex.compile(r"<(\d{1,5})>"), _pause, limit=8),)
