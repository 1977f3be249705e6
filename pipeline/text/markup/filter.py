"""The incremental filter: fragments of a client's text in, plain text and marks out."""

from __future__ import annotations

from collections.abc import Iterable

import regex

from ...interface import NATURAL, MarkupDialect, Prosody
from .dialects import rules_of
from .rule import HISTORY, LINE_START, Found, Rule
from .source_spans import SourceSpans
from .writer import MarkupWriter, Piece


class MarkupFilter:
    """Filters the text of one utterance. Its output does not depend on how the text is split into fragments.

    Text without a character that begins markup passes at once. From such a character on, text is held back until the
    rules have decided, at most the limit of the rule: an unclosed tag is prose. The library `regex` reports whether
    more text could complete a match, which makes a pattern an incremental parser.
    """

    def __init__(self, dialects: Iterable[MarkupDialect] = (), prosody: Prosody = NATURAL) -> None:
        """`prosody`: that of the beginning, which markup changes."""
        self._rules, self._trigger = _index(frozenset(dialects))
        self._out = MarkupWriter(prosody)
        self._text = "\n"
        """Text that is not decided, behind the last characters that are: at first the beginning of a line."""
        self._origin = -1
        """Offset of `_text` in the client's text."""
        self._at = 1
        """Where the undecided text begins in `_text`."""
        self._skipped = 0
        """Characters that the current skip has dropped."""

    @property
    def spans(self) -> SourceSpans:
        """Where the plain text comes from."""
        return self._out.spans

    applied: tuple[str, ...] = ()
    """Terms of a lexicon that were replaced: none, this filter has no lexicon."""

    @property
    def pauses(self) -> int:
        """Number of pauses in the text, which are audio even without a word."""
        return self._out.pauses

    def take_notices(self) -> tuple[str, ...]:
        """Returns what could not be honoured, since the last call; each notice once."""
        return self._out.take_notices()

    def push(self, fragment: str) -> list[Piece]:
        """Accepts a fragment; returns the output that no later text can change."""
        self._text += fragment
        return self._filter(len(self._text), final=False)

    def flush(self) -> list[Piece]:
        """Returns the rest of the output: what is not complete is prose."""
        end = len(self._text)
        self._text += "\n"  # constructs of a line end here
        pieces = self._filter(end, final=True)
        self._text = self._text[:-1]
        if self._out.skip is not None and self._out.skip.limit is not None:
            self._end_skip()
        self._out.spelling = self._out.link_open = False
        return pieces

    def _filter(self, end: int, *, final: bool) -> list[Piece]:
        at = self._at
        while at < end:
            after = self._skip(at, end, final=final) if self._out.skip else self._next(at, end, final=final)
            if after is None:
                break
            at = after
        self.spans.read = self._origin + at
        forgotten = max(0, at - HISTORY)
        self._text, self._at = self._text[forgotten:], at - forgotten
        self._origin += forgotten
        return self._out.take()

    def _next(self, at: int, end: int, *, final: bool) -> int | None:
        """Decides what is at `at`; returns the offset behind it, None while that is unknown."""
        text = self._text
        trigger = self._trigger.search(text, at, end) if self._trigger else None
        if trigger is None or trigger.start() > at:
            stop = end if trigger is None else trigger.start()
            self._out.copy(text[at:stop], self._origin + at)
            return stop
        for rule in self._rules.get(text[at], ()):
            window = at + rule.limit
            match = rule.pattern.match(text, at, min(len(text), window), partial=not final)
            if match is None or match.end() > end:
                continue
            if match.partial:
                if window > len(text):
                    return None
                continue
            if rule.apply(Found(match, self._origin), self._out) is not False:
                return int(match.end())
        self._out.copy(text[at], self._origin + at)
        return at + 1

    def _skip(self, at: int, end: int, *, final: bool) -> int | None:
        """Drops text; returns the offset behind it, None if more text is needed."""
        skip = self._out.skip
        assert skip is not None
        window = len(self._text) if skip.limit is None else at + skip.limit - self._skipped
        match = skip.end.search(self._text, at, min(len(self._text), window), partial=not final)
        if match is not None and not match.partial:
            after: int = min(match.end(), end)
            self.spans.extend(self._origin + match.start())
            self._end_skip()
            return after
        if skip.limit is not None and window <= end:
            self.spans.extend(self._origin + window)
            self._end_skip()
            return window
        after = end if match is None else min(match.start(), end)
        self._skipped += after - at
        self.spans.extend(self._origin + after)
        return after if after > at else None

    def _end_skip(self) -> None:
        self._out.skip, self._skipped = None, 0


_INDEXES: dict[frozenset[MarkupDialect], tuple[dict[str, list[Rule]], regex.Pattern[str] | None]] = {}


def _index(dialects: frozenset[MarkupDialect]) -> tuple[dict[str, list[Rule]], regex.Pattern[str] | None]:
    """Returns the rules of `dialects` by their first character, and the pattern that finds such a character."""
    if dialects not in _INDEXES:
        rules: dict[str, list[Rule]] = {}
        for rule in rules_of(dialects):
            for char in rule.first:
                rules.setdefault(char, []).append(rule)
        anywhere = [regex.escape(char) for char, each in rules.items() if not all(rule.line_start for rule in each)]
        at_start = [regex.escape(char) for char, each in rules.items() if all(rule.line_start for rule in each)]
        parts = ([f"[{''.join(anywhere)}]"] if anywhere else []) + (
            [f"{LINE_START}[{''.join(at_start)}]"] if at_start else []
        )
        _INDEXES[dialects] = rules, regex.compile("|".join(parts)) if parts else None
    return _INDEXES[dialects]
