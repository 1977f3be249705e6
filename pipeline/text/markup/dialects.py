"""The rules of each dialect."""

from __future__ import annotations

from collections.abc import Collection

from ...interface import MarkupDialect
from .cartesia import ELEMENTS as CARTESIA_ELEMENTS
from .deepgram import RULES as DEEPGRAM_RULES
from .element import Handler, element_rule
from .elevenlabs import RULES as ELEVENLABS_RULES
from .html import ELEMENTS as HTML_ELEMENTS
from .html import ENTITY_RULE, ignore_unknown
from .html import RULES as HTML_RULES
from .markdown import RULES as MARKDOWN_RULES
from .rime import RULES as RIME_RULES
from .rule import Rule
from .ssml import ELEMENTS as SSML_ELEMENTS
from .think import ELEMENTS as THINK_ELEMENTS

_ELEMENTS = (
    (MarkupDialect.THINK, THINK_ELEMENTS),
    (MarkupDialect.CARTESIA, CARTESIA_ELEMENTS),
    (MarkupDialect.SSML, SSML_ELEMENTS),
    (MarkupDialect.HTML, HTML_ELEMENTS),
)
"""Elements of each dialect that has some. A name that two dialects have means what the earlier one says."""
_RULES = (
    (MarkupDialect.ELEVENLABS, ELEVENLABS_RULES),
    (MarkupDialect.DEEPGRAM, DEEPGRAM_RULES),
    (MarkupDialect.RIME, RIME_RULES),
    (MarkupDialect.HTML, HTML_RULES),
    (MarkupDialect.MARKDOWN, MARKDOWN_RULES),
)
"""Other rules of each dialect, in the order in which they are tried."""


def rules_of(dialects: Collection[MarkupDialect]) -> list[Rule]:
    """Returns the rules of `dialects`, in the order in which they are tried."""
    elements: dict[str, Handler] = {}
    for dialect, handlers in _ELEMENTS:
        if dialect in dialects:
            elements = {**handlers, **elements}
    rules = [rule for dialect, each in _RULES if dialect in dialects for rule in each]
    if elements:
        rules.append(element_rule(elements, ignore_unknown if MarkupDialect.HTML in dialects else None))
    if MarkupDialect.HTML in dialects or MarkupDialect.SSML in dialects:
        rules.append(ENTITY_RULE)
    return rules
