"""Cartesia: `<speed/>`, `<volume/>`, `<emotion/>`, `<break/>` and `<spell>`."""

from __future__ import annotations

from collections.abc import Mapping

from .element import Handler, ignore_tag, spell_content
from .ssml import pause

ELEMENTS: Mapping[str, Handler] = {
    "break": pause,
    "spell": spell_content,
    "speed": ignore_tag,
    "volume": ignore_tag,
    "emotion": ignore_tag,
}
