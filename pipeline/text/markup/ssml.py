"""SSML: the elements of the W3C's recommendation, and those of services, which have a prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import regex

from .element import (
    Handler,
    Tag,
    drop_tag,
    end_paragraph,
    ignore_tag,
    separate_words,
    skip_content,
    spell_content,
)
from .quantities import duration_ms, percentage, ratio
from .writer import MarkupWriter, Skip

_STRENGTH_MS = {"none": 0, "x-weak": 100, "weak": 250, "medium": 500, "strong": 750, "x-strong": 1000}
"""Pauses by `strength`; SSML leaves them to the implementation."""
_SPELLED = frozenset({"characters", "spell-out", "verbatim", "digits", "telephone"})
"""Values of `interpret-as` whose content is spoken character by character."""
_EXTENSIONS = (
    "amazon:auto-breaths amazon:breath amazon:domain amazon:effect amazon:emotion google:style mstts:audioduration"
    " mstts:backgroundaudio mstts:express-as mstts:silence mstts:viseme"
)
"""Elements of services."""
MAX_ALIASED_CHARACTERS = 512
"""Most characters that an alias replaces; without an end tag, what follows them is spoken."""
_ALIAS_END = regex.compile(r"</sub\s{0,8}>", regex.IGNORECASE)


def pause(tag: Tag, out: MarkupWriter) -> None:
    """`<break time="1.5s"/>` or `<break strength="strong"/>`."""
    if tag.closing:
        return
    attributes = tag.attributes()
    ms: float | None = _STRENGTH_MS.get(attributes.get("strength", "medium"), _STRENGTH_MS["medium"])
    if "time" in attributes and (ms := duration_ms(attributes["time"], "s")) is None:
        out.ignore("a <break> whose time is not a duration")
    out.pause(ms or 0, tag.start, tag.end)


def _substitute(tag: Tag, out: MarkupWriter) -> None:
    """`<sub alias="World Wide Web">WWW</sub>`: the alias is spoken for the content."""
    alias = tag.attributes().get("alias", "")
    if tag.opening and alias.strip():
        out.replace(alias, tag.end, tag.end)
        out.skip = Skip(_ALIAS_END, MAX_ALIASED_CHARACTERS)


def _interpret(tag: Tag, out: MarkupWriter) -> None:
    """`<say-as interpret-as="characters">`; numbers and dates are read as they are written."""
    if tag.closing or tag.attributes().get("interpret-as", "").lower() in _SPELLED:
        spell_content(tag, out)


def _prosody(tag: Tag, out: MarkupWriter) -> None:
    """`<prosody rate="slow" volume="+6dB">`: both are relative to what is around the element."""
    if tag.closing:
        out.close_prosody()
    if not tag.opening:
        return
    factors = {"rate": 1.0, "volume": 1.0}
    for name, value in tag.attributes().items():
        if name not in factors:
            out.ignore(f"<prosody {name[:16]}>")
        elif (factor := _FACTORS[name](value.strip().lower())) is None:
            out.ignore(f"a <prosody {name}> of unknown value")
        else:
            factors[name] = factor
    out.open_prosody(**factors)


def _rate_factor(value: str) -> float | None:
    """A word, a factor as "1.2" or "120%", or a change as "+20%"."""
    return _RATES.get(value, ratio(value) if (factor := percentage(value)) is None else factor)


def _volume_factor(value: str) -> float | None:
    """A word, a change in decibels or per cent, or a number from 0 to 100."""
    if (decibels := _DECIBELS.fullmatch(value)) is not None:
        return float(10 ** (float(decibels[1]) / 20))
    number = ratio(value)
    return _VOLUMES.get(value, percentage(value) if number is None else number / 100)


_RATES = {"x-slow": 0.5, "slow": 0.8, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5}
"""Factors by word; SSML leaves them to the implementation."""
_VOLUMES = {"silent": 0.0, "x-soft": 0.25, "soft": 0.5, "medium": 1.0, "default": 1.0, "loud": 1.4, "x-loud": 2.0}
_DECIBELS = regex.compile(r"([+-]?\d{1,3}+(?:\.\d{0,9}+)?)\s?db")
_FACTORS: Mapping[str, Callable[[str], float | None]] = {"rate": _rate_factor, "volume": _volume_factor}


ELEMENTS: Mapping[str, Handler] = {
    "speak": separate_words,
    "p": end_paragraph,
    "s": end_paragraph,
    "w": drop_tag,
    "token": drop_tag,
    "break": pause,
    "sub": _substitute,
    "say-as": _interpret,
    "prosody": _prosody,
    "mark": drop_tag,
    "metadata": skip_content,
    "desc": skip_content,
    "meta": drop_tag,
    "lexicon": ignore_tag,
    "lookup": ignore_tag,
    "emphasis": ignore_tag,
    "phoneme": ignore_tag,
    "voice": ignore_tag,
    "lang": ignore_tag,
    "audio": ignore_tag,
    **dict.fromkeys(_EXTENSIONS.split(), ignore_tag),
}
"""Elements by name. What is ignored is so with a notice; the content is spoken."""
