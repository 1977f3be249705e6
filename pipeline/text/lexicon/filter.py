"""Replaces terms of lexica in the text that the markup filter passes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ...interface import NATURAL, MarkupDialect, Prosody, WordTime
from ..markup.filter import MarkupFilter
from ..markup.source_spans import SourceSpans
from ..markup.writer import Piece
from .lexicon import Lexicon, Match, SearchText

MAX_ALLOWANCE_CHARACTERS = 512
"""Most characters that spoken forms may add at once. Each character of text allows one more, so a text at most doubles:
the time that a turn of the event loop takes for text, and the length of speech, stay in proportion to it."""
MAX_APPLIED = 64
"""Most terms that are reported for an utterance."""


class ComposedSpans:
    """Maps offsets in the spoken text to the client's, through the text without markup."""

    def __init__(self, spoken: SourceSpans, plain: SourceSpans) -> None:
        self._spoken, self._plain = spoken, plain

    def start(self, offset: int) -> int:
        """As `SourceSpans.start`."""
        return self._plain.start(self._spoken.start(offset))

    def end(self, offset: int) -> int:
        """As `SourceSpans.end`."""
        return self._plain.end(self._spoken.end(offset))

    def locate(self, words: Iterable[WordTime]) -> list[WordTime]:
        """As `SourceSpans.locate`."""
        return self._plain.locate(self._spoken.locate(words))

    def boundary(self, offset: int) -> int:
        """As `SourceSpans.boundary`."""
        return self._plain.boundary(self._spoken.boundary(offset))


class Spans(Protocol):
    """Maps offsets in what a filter has written to the client's text; see `SourceSpans`."""

    def start(self, offset: int) -> int: ...
    def end(self, offset: int) -> int: ...
    def locate(self, words: Iterable[WordTime]) -> list[WordTime]: ...
    def boundary(self, offset: int) -> int: ...


class TextFilter(Protocol):
    """What an utterance's text passes through first: a `MarkupFilter`, or a `LexiconFilter` around one."""

    @property
    def spans(self) -> Spans: ...
    @property
    def pauses(self) -> int: ...
    @property
    def applied(self) -> tuple[str, ...]: ...
    def take_notices(self) -> tuple[str, ...]: ...
    def push(self, fragment: str) -> list[Piece]: ...
    def flush(self) -> list[Piece]: ...


def make_text_filter(
    dialects: Iterable[MarkupDialect], lexica: Sequence[Lexicon], prosody: Prosody = NATURAL
) -> TextFilter:
    """The filter of an utterance's text; `lexica` in the order of their priority, `prosody` that of its beginning."""
    markup = MarkupFilter(dialects, prosody)
    return LexiconFilter(markup, lexica) if lexica else markup


class LexiconFilter:
    """Filters the text of one utterance: markup first, then terms. Has the interface of `MarkupFilter`.

    At each character the longest term counts; of equally long ones that of the first lexicon. Text is held back only
    while it may be the beginning of a term, which spans no pause and no change of prosody. The output does not depend
    on how the text is split.
    """

    def __init__(self, markup: MarkupFilter, lexica: Sequence[Lexicon]) -> None:
        """`lexica`: in the order of their priority."""
        self._markup, self._lexica = markup, lexica
        self._own_spans = SourceSpans()
        self.spans = ComposedSpans(self._own_spans, markup.spans)
        self._text = ""
        """Text that is not decided."""
        self._before = ""
        """The character before it."""
        self._allowance = MAX_ALLOWANCE_CHARACTERS
        self._applied: dict[str, None] = {}

    @property
    def applied(self) -> tuple[str, ...]:
        """Terms that were replaced so far, as their rules write them, each once."""
        return tuple(self._applied)

    @property
    def pauses(self) -> int:
        """As `MarkupFilter.pauses`."""
        return self._markup.pauses

    def take_notices(self) -> tuple[str, ...]:
        """As `MarkupFilter.take_notices`."""
        return self._markup.take_notices()

    def push(self, fragment: str) -> list[Piece]:
        """Accepts a fragment; returns the output that no later text can change."""
        return self._replace_in(self._markup.push(fragment))

    def flush(self) -> list[Piece]:
        """Returns the rest of the output: terms that are not complete are none."""
        pieces = self._replace_in(self._markup.flush())
        rest = self._replace("", final=True)
        return [*pieces, rest] if rest else pieces

    def _replace_in(self, pieces: Iterable[Piece]) -> list[Piece]:
        replaced: list[Piece] = []
        for piece in pieces:
            if not isinstance(piece, str):
                text = self._replace("", final=True)
                replaced += [*([text] if text else []), replace(piece, offset=self._own_spans.length)]
            elif text := self._replace(piece, final=False):
                replaced.append(text)
        return replaced

    def _replace(self, plain: str, *, final: bool) -> str:
        """Takes plain text; returns the spoken text that is decided."""
        text = self._text + plain
        origin, at = self._own_spans.read, 0
        parts: list[str] = []
        searched = SearchText.of(text)
        while at < len(text):
            found = self._find(searched, at, final=final)
            if found is True:
                break
            if isinstance(found, Match) and self._allow(found, at):
                parts.append(found.rule.spoken)
                self._own_spans.replace(len(found.rule.spoken), origin + at, origin + found.end)
                end = found.end
            else:
                end = at + 1
                parts.append(text[at])
                self._own_spans.copy(1, origin + at)
            self._allowance = min(MAX_ALLOWANCE_CHARACTERS, self._allowance + end - at)
            self._before, at = text[end - 1], end
        self._text = text[at:]
        self._own_spans.read = origin + at
        return "".join(parts)

    def _find(self, text: SearchText, at: int, *, final: bool) -> Match | bool:
        best: Match | None = None
        for lexicon in self._lexica:
            found = lexicon.find(text, at, self._before, final=final)
            if found is True:
                return True
            if isinstance(found, Match) and (best is None or found.end > best.end):
                best = found
        return best or False

    def _allow(self, match: Match, at: int) -> bool:
        """Whether a match may be replaced; takes what it adds from the allowance."""
        added = max(0, len(match.rule.spoken) - (match.end - at))
        if added > self._allowance:
            return False
        self._allowance -= added
        if len(self._applied) < MAX_APPLIED:
            self._applied.setdefault(match.rule.term)
        return True
