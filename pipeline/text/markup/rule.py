"""A rule of a dialect: which characters are markup, and what is written for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import regex

from .writer import MarkupWriter


@dataclass(frozen=True, slots=True)
class Found:
    """Markup that a rule has found; offsets are those of the client's text."""

    match: regex.Match[str]
    origin: int
    """Offset of the first character of the text that was searched."""

    @property
    def start(self) -> int:
        return self.origin + int(self.match.start())

    @property
    def end(self) -> int:
        return self.origin + int(self.match.end())

    def copy(self, group: int, out: MarkupWriter) -> None:
        """Writes what a group of the pattern has matched."""
        out.copy(self.match[group] or "", self.origin + self.match.start(group))


@dataclass(frozen=True, slots=True)
class Rule:
    """One construct of a dialect.

    `pattern` is definite: text that follows a match cannot make it longer or undo it, so it ends with a character that
    ends the construct, or looks ahead for one. It may look back at HISTORY characters. `apply` writes what the match
    stands for; it returns False to decline it.
    """

    first: str
    """Characters with which the construct begins."""
    pattern: regex.Pattern[str]
    apply: Callable[[Found, MarkupWriter], bool | None]
    limit: int = 64
    """Most characters of the construct; what is longer is prose."""
    line_start: bool = False
    """Whether it is found at the beginning of a line only."""


HISTORY = 16
"""Characters before a construct that its pattern may look at."""
LINE_START = rf"(?<=\n[ \t]{{0,{HISTORY - 1}}})"
"""Pattern for the beginning of a line, behind indentation."""


def drop(found: Found, out: MarkupWriter) -> None:
    """Writes nothing for the markup."""
    del found, out
