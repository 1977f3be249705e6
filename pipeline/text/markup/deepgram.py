r"""Deepgram's inline controls: `\{pause:1s\}` and `\{"word":"live","pronounce":"…"\}`."""

from __future__ import annotations

import regex

from .quantities import duration_ms
from .rule import Found, Rule
from .writer import MarkupWriter

_OPEN, _CLOSE = r"\\?+\{\s*+", r"\s*+\\?+\}"


def _quoted(name: str) -> str:
    return rf'\\?"{name}\\?"\s*+:\s*+'


_PAUSE = regex.compile(rf"{_OPEN}pause\s*+:\s*+([\d.]++\s*+(?:ms|s)?+){_CLOSE}")
_VALUE = r'\\?+"([^"\\]*+)\\?+"'
_PRONUNCIATION = regex.compile(rf"{_OPEN}{_quoted('word')}{_VALUE}\s*+,\s*+{_quoted('pronounce')}{_VALUE}{_CLOSE}")


def _pause(found: Found, out: MarkupWriter) -> None:
    ms = duration_ms(found.match[1], "ms")
    if ms is None:
        out.ignore("a pause that is not a duration")
    out.pause(ms or 0, found.start, found.end)


def _pronounce(found: Found, out: MarkupWriter) -> None:
    """Speaks the word as the voice does: it reads no phonemes."""
    out.ignore("a pronunciation in phonemes")
    found.copy(1, out)


RULES = (
    Rule("\\{", _PAUSE, _pause, limit=48),
    Rule("\\{", _PRONUNCIATION, _pronounce, limit=256),
)
