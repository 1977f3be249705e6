"""HTML: tags are dropped, blocks divide the text, comments and scripts are not read, entities become characters."""

from __future__ import annotations

import html
from collections.abc import Mapping

import regex

from .element import MAX_TAG_CHARACTERS, Handler, Tag, drop_tag, end_paragraph, separate_words, skip_content
from .rule import Found, Rule, drop
from .writer import MarkupWriter, Skip

MAX_COMMENT_CHARACTERS = 2048
"""Longest comment; without an end, what follows is spoken."""
_COMMENT_END = regex.compile("-->")
_INLINE = "a abbr b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span strike strong"
_BLOCKS = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure footer"
    " form h1 h2 h3 h4 h5 h6 head header hr html li main nav ol p pre section summary table tbody tfoot thead title tr"
    " ul"
)
_WORDS = "br button img input option select source td textarea th track video wbr"
_UNREAD = "script style svg template noscript iframe object"

ELEMENTS: Mapping[str, Handler] = {
    **dict.fromkeys(f"{_INLINE} sub sup time tt u var".split(), drop_tag),
    **dict.fromkeys(_BLOCKS.split(), end_paragraph),
    **dict.fromkeys(_WORDS.split(), separate_words),
    **dict.fromkeys(_UNREAD.split(), skip_content),
}


def ignore_unknown(tag: Tag, out: MarkupWriter) -> None:
    """Speaks the content of an element that no dialect knows."""
    if not tag.closing:
        out.ignore("an element of unknown name")
    out.separate(tag.start, tag.end)


def _begin_comment(found: Found, out: MarkupWriter) -> None:
    del found
    out.skip = Skip(_COMMENT_END, MAX_COMMENT_CHARACTERS)


def _copy_address(found: Found, out: MarkupWriter) -> None:
    found.copy(1, out)


def _replace_entity(found: Found, out: MarkupWriter) -> bool:
    entity = found.match[0]
    character = html.unescape(entity)
    known = character != entity and len(character) < len(entity)
    if known:
        out.replace(character, found.start, found.end)
    return known


RULES = (
    Rule("<", regex.compile("<!--"), _begin_comment, limit=8),
    Rule("<", regex.compile(r"<[!?][A-Za-z][^<>]*+>"), drop, limit=MAX_TAG_CHARACTERS),
    # An address in angle brackets is text.
    Rule("<", regex.compile(r"<((?:https?://|mailto:)[^\s<>]++)>"), _copy_address, limit=256),
    Rule("<", regex.compile(r"<([\w.+-]++@[\w.-]++)>"), _copy_address, limit=128),
)
ENTITY_RULE = Rule(
    "&", regex.compile(r"&(?:#\d{1,7}+|#[xX][0-9A-Fa-f]{1,6}+|[A-Za-z][A-Za-z0-9]{1,31}+);"), _replace_entity, limit=40
)
