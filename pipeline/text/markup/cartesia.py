"""Cartesia: `<speed/>`, `<volume/>`, `<emotion/>`, `<break/>` and `<spell>`."""

from __future__ import annotations

from collections.abc import Mapping

from .element import Handler, Tag, ignore_tag, spell_content
from .quantities import ratio
from .ssml import pause
from .writer import MarkupWriter


def _speed(tag: Tag, out: MarkupWriter) -> None:
    """`<speed ratio="1.5"/>`: the rate up to the next one."""
    if (rate := _ratio(tag, out)) is not None:
        out.set_rate(rate)


def _volume(tag: Tag, out: MarkupWriter) -> None:
    """`<volume ratio="0.5"/>`: the volume up to the next one."""
    if (volume := _ratio(tag, out)) is not None:
        out.set_volume(volume)


def _ratio(tag: Tag, out: MarkupWriter) -> float | None:
    if tag.closing:
        return None
    found = ratio(tag.attributes().get("ratio", ""))
    if found is None:
        out.ignore(f"a <{tag.name}> whose ratio is not a number")
    return found


ELEMENTS: Mapping[str, Handler] = {
    "break": pause,
    "spell": spell_content,
    "speed": _speed,
    "volume": _volume,
    "emotion": ignore_tag,
}
