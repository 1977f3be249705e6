"""Elements in angle brackets, as of SSML and HTML: tags with their attributes, and what each element does."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from functools import partial

import regex

from .rule import Found, Rule
from .writer import MarkupWriter, Skip

MAX_TAG_CHARACTERS = 512
"""Longest tag."""
_ATTRIBUTE = r"""[\w:.-]++\s*+=\s*+(?:"[^"]*+"|'[^']*+')"""
_TAG = regex.compile(rf"<(/?)([A-Za-z][\w:.-]*+)((?:\s++{_ATTRIBUTE})*+)\s*+(/?)>")
"""A tag. Every attribute has a quoted value: "a <b and c> d" is prose."""
_ATTRIBUTES = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


class Tag:
    """One tag: its name in lower case, whether it ends its element, and its attributes."""

    def __init__(self, found: Found) -> None:
        match = found.match
        self.name = match[2].lower()
        self.closing = bool(match[1])
        self.empty = bool(match[4])
        """Whether it is an element without content, as `<break/>`."""
        self.start, self.end = found.start, found.end
        self._attributes = match[3]

    @property
    def opening(self) -> bool:
        """Whether content follows."""
        return not self.closing and not self.empty

    def attributes(self) -> dict[str, str]:
        """The attributes by lower-case name, their values without entities."""
        found = _ATTRIBUTES.findall(self._attributes)
        return {name.lower(): html.unescape(double or single) for name, double, single in found}


Handler = Callable[[Tag, MarkupWriter], None]
"""Writes what a tag stands for."""


def element_rule(handlers: Mapping[str, Handler], unknown: Handler | None) -> Rule:
    """Returns the rule for the elements of `handlers`; `unknown`: for all others, None where they are prose."""
    return Rule("<", _TAG, partial(_apply, handlers, unknown), limit=MAX_TAG_CHARACTERS)


def _apply(handlers: Mapping[str, Handler], unknown: Handler | None, found: Found, out: MarkupWriter) -> bool:
    tag = Tag(found)
    handler = handlers.get(tag.name, unknown)
    if handler is not None:
        handler(tag, out)
    return handler is not None


# Handlers that several dialects use


def drop_tag(tag: Tag, out: MarkupWriter) -> None:
    """Speaks the content alone."""
    del tag, out


def ignore_tag(tag: Tag, out: MarkupWriter) -> None:
    """Speaks the content alone, with a notice that the element is not honoured."""
    if not tag.closing:
        out.ignore(f"<{tag.name}>")


def end_paragraph(tag: Tag, out: MarkupWriter) -> None:
    """Divides the text before the element from its content, and its content from what follows."""
    out.paragraph(tag.start, tag.end)


def separate_words(tag: Tag, out: MarkupWriter) -> None:
    """Keeps the text on both sides apart."""
    out.separate(tag.start, tag.end)


def skip_content(tag: Tag, out: MarkupWriter) -> None:
    """Drops the element with its content."""
    if tag.opening:
        out.skip = Skip(_end_tag(tag.name))


def spell_content(tag: Tag, out: MarkupWriter) -> None:
    """Speaks letters and digits of the content one by one."""
    if tag.empty:
        return
    if tag.closing:
        out.spelling = False
    else:
        out.spelling = True


_END_TAGS: dict[str, regex.Pattern[str]] = {}


def _end_tag(name: str) -> regex.Pattern[str]:
    """Returns the pattern of an element's end tag; `name` is one of the dialects'."""
    if name not in _END_TAGS:
        _END_TAGS[name] = regex.compile(rf"</{regex.escape(name)}\s{{0,8}}>", regex.IGNORECASE)
    return _END_TAGS[name]
