"""What a filter writes: plain text, pauses, changes of prosody, and notices of what could not be honoured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import regex

from ...interface import MAX_RATE, MAX_VOLUME, MIN_RATE, NATURAL, Prosody
from .source_spans import SourceSpans

MAX_PAUSE_MS = 10_000
"""Longest pause; the services' own limits are between 3 s and 10 s."""
MAX_SILENCE_MS = 60_000
"""Longest silence of all pauses of an utterance: silence costs a client nothing and keeps a connection."""
MAX_NOTICES = 16
"""Most different notices of an utterance."""
_BLANKS = regex.compile(r"\s*+")
_CLOSING = regex.compile(r"[\p{Pe}\p{Pf}.,;:!?…。，、！？；：\"']*+\s*+")  # noqa: RUF001 - marks of other scripts
"""What belongs to the word before it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence of `ms` milliseconds behind the first `offset` characters of the plain text."""

    ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProsodyChange:
    """Another prosody behind the first `offset` characters of the plain text."""

    prosody: Prosody
    offset: int


Mark = Pause | ProsodyChange
"""What is done to the audio between two pieces of text."""
Piece = str | Mark
"""A run of plain text, or a mark."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Text that is dropped up to a terminator.

    `end`: pattern of the terminator, which is dropped too; it is definite, as patterns of rules. `limit`: most
    characters that are dropped without it; None: any number, also across a flush.
    """

    end: regex.Pattern[str]
    limit: int | None = None


class MarkupWriter:
    """Collects the output of one utterance's text. `start` and `end` are offsets in the client's text."""

    def __init__(self, prosody: Prosody = NATURAL) -> None:
        """`prosody`: that of the beginning."""
        self.spans = SourceSpans()
        self.spelling = False
        """Whether letters and digits are written one by one."""
        self.skip: Skip | None = None
        """What is dropped now."""
        self.link_open = False
        """Whether the text of a link is written, whose address follows."""
        self._parts: list[str] = []
        self._pieces: list[Piece] = []
        self._last = "\n\n"
        """The last two characters written."""
        self.pauses = 0
        """Number of all pauses."""
        self.silence_ms = 0
        """Of all pauses."""
        self._prosody = self._written = prosody
        """The prosody of the text to come, and of the text written last."""
        self._outer: list[Prosody] = []
        """Prosody around each open element that changed it."""
        self._notices: dict[str, bool] = {}
        """All notices, and whether each was taken."""

    def copy(self, text: str, start: int) -> None:
        """Writes text of the client that begins at `start`."""
        if not text:
            return
        if (before := self._before_prosody(text)) < len(text):
            self.copy(text[:before], start)
            self._begin_prosody(start + before)
            text, start = text[before:], start + before
        if not self.spelling:
            self.spans.copy(len(text), start)
            self._write(text)
            return
        for at, char in enumerate(text, start):
            self.spans.copy(1, at)
            self._write(char)
            if char.isalnum():
                self.replace(" ", at, at + 1)

    def replace(self, text: str, start: int, end: int) -> None:
        """Writes `text` for the client's text from `start` to `end`."""
        if text:
            if self._before_prosody(text) < len(text):
                self._begin_prosody(start)
            self.spans.replace(len(text), start, end)
            self._write(text)

    def separate(self, start: int, end: int) -> None:
        """Keeps the words on both sides of markup apart."""
        if not self._last[-1].isspace():
            self.replace(" ", start, end)

    def paragraph(self, start: int, end: int) -> None:
        """Ends a paragraph, which a voice may close with a mark."""
        missing = 2 - (len(self._last) - len(self._last.rstrip("\n")))
        self.replace("\n" * missing, start, end)

    def pause(self, ms: float, start: int, end: int) -> None:
        """Inserts silence, within the limits."""
        wanted_ms = round(ms)
        allowed_ms = max(0, min(wanted_ms, MAX_PAUSE_MS, MAX_SILENCE_MS - self.silence_ms))
        if allowed_ms < wanted_ms:
            self.notice(
                f"a pause lasts at most {MAX_PAUSE_MS / 1000:g} s, and all pauses of an utterance "
                f"{MAX_SILENCE_MS / 1000:g} s: a longer one was shortened"
            )
        self.separate(start, end)
        if allowed_ms:
            self.pauses += 1
            self.silence_ms += allowed_ms
            self._end_run()
            self._pieces.append(Pause(allowed_ms, self.spans.length))

    def set_rate(self, rate: float) -> None:
        """Changes the rate of the text to come, within the limits."""
        self._prosody = replace(self._prosody, rate=self._within("rate", rate, MIN_RATE, MAX_RATE))

    def set_volume(self, volume: float) -> None:
        """Changes the volume of the text to come, within the limits."""
        self._prosody = replace(self._prosody, volume=self._within("volume", volume, 0, MAX_VOLUME))

    def open_prosody(self, rate: float, volume: float) -> None:
        """Begins an element; `rate` and `volume` are factors of what is around it."""
        around = self._prosody
        self._outer.append(around)
        self.set_rate(around.rate * rate)
        self.set_volume(around.volume * volume)

    def close_prosody(self) -> None:
        """Ends the element that was opened last, if there is one."""
        if self._outer:
            self._prosody = self._outer.pop()

    def _within(self, what: str, wanted: float, least: float, most: float) -> float:
        allowed = min(max(wanted, least), most)
        if allowed != wanted:
            self.notice(f"the {what} of speech is at least {least:g} and at most {most:g}: one beyond was adjusted")
        return allowed

    def ignore(self, what: str) -> None:
        """Notes that a control of the client is not honoured."""
        self.notice(f"{what} is not supported and was ignored")

    def notice(self, text: str) -> None:
        if len(self._notices) < MAX_NOTICES:
            self._notices.setdefault(text, False)

    def take_notices(self) -> tuple[str, ...]:
        """Returns the notices since the last call; each is given once."""
        new = tuple(text for text, taken in self._notices.items() if not taken)
        for text in new:
            self._notices[text] = True
        return new

    def take(self) -> list[Piece]:
        """Returns everything written since the last call."""
        self._end_run()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _before_prosody(self, text: str) -> int:
        """Returns how much of `text` belongs to what was written before a change of prosody: blanks, closing marks."""
        if self._prosody == self._written:
            return len(text)
        pattern = _BLANKS if self._last[-1].isspace() else _CLOSING
        found = pattern.match(text)
        return 0 if found is None else int(found.end())

    def _begin_prosody(self, at: int) -> None:
        """Writes the change of prosody, before the client's text at `at`.

        That is behind the markup, so that prosody without words has no effect.
        """
        prosody, self._written = self._prosody, self._prosody
        self.separate(at, at)
        self._end_run()
        self._pieces.append(ProsodyChange(prosody, self.spans.length))

    def _write(self, text: str) -> None:
        self._parts.append(text)
        self._last = (self._last + text)[-2:]

    def _end_run(self) -> None:
        if self._parts:
            self._pieces.append("".join(self._parts))
            self._parts.clear()
