"""Markdown: marks of emphasis, code, headings, lists, quotes and tables are dropped, and the addresses of links.

Content is spoken, code too. A heading, an item and a row end a paragraph.
"""

from __future__ import annotations

import regex

from .rule import LINE_START, Found, Rule, drop
from .writer import MarkupWriter, Skip

MAX_LINK_CHARACTERS = 200
"""Longest text of a link: it is held back until its address begins."""
MAX_ADDRESS_CHARACTERS = 1024
"""Longest address of a link; without an end, what follows is spoken."""
_ADDRESS_END = regex.compile(r"\)(?=[^)])|(?=\n)")
"""Of several closing parentheses the last ends the address: ".../Foo_(bar))"."""

_FLANKING = (
    # Before a word, after a word, or within one that is no number: 2 * 3, 5*4 and snake_case are prose.
    r"(?<![\w{mark}]){run}(?=[^\s{mark}])",
    r"(?<=[^\s{mark}]){run}(?=[^\w{mark}])",
)


def _emphasis(mark: str, *more: str) -> regex.Pattern[str]:
    run = rf"{mark}{{1,3}}+"
    return regex.compile("|".join([each.format(mark=mark, run=run) for each in _FLANKING] + list(more)))


def _paragraph(found: Found, out: MarkupWriter) -> None:
    out.paragraph(found.start, found.end)


def _copy(found: Found, out: MarkupWriter) -> None:
    found.copy(1, out)


def _open_link(found: Found, out: MarkupWriter) -> None:
    del found
    out.link_open = True


def _skip_address(found: Found, out: MarkupWriter) -> bool:
    del found
    opened, out.link_open = out.link_open, False
    if opened:
        out.skip = Skip(_ADDRESS_END, MAX_ADDRESS_CHARACTERS)
    return opened


def _close_link(found: Found, out: MarkupWriter) -> bool:
    del found
    opened, out.link_open = out.link_open, False
    return opened


def _comma(found: Found, out: MarkupWriter) -> None:
    out.replace(",", found.start, found.end)


_LINK_TEXT = r"(?:[^\[\]\n\\]|\\.)++"

RULES = (
    Rule("\\", regex.compile(r"\\([\\`*_{}\[\]()#+.!|<>~-])"), _copy, limit=2),
    # Lines
    Rule("#", regex.compile(rf"{LINE_START}#{{1,6}}+[ \t]++(?=[^ \t])"), _paragraph, line_start=True),
    Rule(">", regex.compile(rf"{LINE_START}>[ \t]*+(?=[^ \t])"), drop, line_start=True),
    Rule("-*_", regex.compile(rf"{LINE_START}([-*_])(?:[ \t]*+\1){{2,}}+[ \t]*+(?=\n)"), _paragraph, limit=128),
    Rule(
        "|-:",
        regex.compile(rf"{LINE_START}\|?+[ \t]*+:?+-{{3,}}+[-:| \t]*+(?=\n)"),
        drop,
        limit=256,
        line_start=True,
    ),
    Rule("-+*", regex.compile(rf"{LINE_START}[-+*][ \t]++(?=[^ \t])"), _paragraph),
    Rule("`~", regex.compile(rf"{LINE_START}(?:`{{3,}}+|~{{3,}}+)[^\n`]*+(?=\n)"), drop, limit=80),
    # Tables: a bar between blanks divides two cells.
    Rule("|", regex.compile(rf"{LINE_START}\|[ \t]*+(?=[^ \t])"), drop, line_start=True),
    Rule("|", regex.compile(r"\|[ \t]*+(?=\n)"), _paragraph),
    Rule("|", regex.compile(r"(?<=[ \t])\|(?=[ \t])"), _comma, limit=4),
    # Links and footnotes
    Rule("[", regex.compile(r"(?<=[-+*][ \t]{1,4})\[[ xX]\](?=[ \t])"), drop, limit=6),
    Rule("[", regex.compile(r"\[\^[\w-]++\]"), drop, limit=24),
    Rule("[", regex.compile(rf"\[(?={_LINK_TEXT}\][(\[])"), _open_link, limit=MAX_LINK_CHARACTERS + 3),
    Rule("]", regex.compile(r"\]\("), _skip_address, limit=2),
    Rule("]", regex.compile(r"\]\[[^\[\]\n]*+\]"), _close_link, limit=80),
    # Emphasis and code
    Rule("*", _emphasis(r"\*", r"(?<=[^\W\d])\*\*(?=[^\W\d])"), drop, limit=6),
    Rule("_", _emphasis("_"), drop, limit=6),
    Rule("~", regex.compile(r"~~(?=[^~])"), drop, limit=4),
    Rule("`", regex.compile(r"`{1,3}+(?=[^`])"), drop, limit=6),
)
