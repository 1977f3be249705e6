"""Tokens of an utterance that wait for the talker, and where one generation ends and the next begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .markup.writer import Mark
from .utterance_text import SpeechToken


@dataclass(frozen=True, slots=True)
class _Cut:
    """In the token queue: the tokens before it are spoken to their end, and `mark` follows."""

    mark: Mark | None = None


class TokenQueue:
    """An utterance's tokens that wait for the talker, cut into generations. Synchronous.

    It is cut where it is flushed, at the first end of a sentence after `segment_tokens` tokens (0: nowhere), and where
    a generation has no more room.
    """

    def __init__(self, segment_tokens: int) -> None:
        self._segment_tokens = segment_tokens
        self._queue: deque[SpeechToken | _Cut] = deque()
        self.ended = False
        """Whether no more tokens come."""
        self.last: SpeechToken | None = None
        """The last token that was handed out."""
        self._marks: list[Mark] = []
        """Marks behind the tokens that were handed out."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, tokens: Sequence[SpeechToken]) -> None:
        self._queue.extend(tokens)

    def cut(self, mark: Mark | None = None) -> None:
        """Ends a generation with the tokens added so far; `mark`: what follows it."""
        self._queue.append(_Cut(mark))

    def take_marks(self) -> list[Mark]:
        """Returns the marks that lie behind the tokens handed out so far, each once."""
        marks, self._marks = self._marks, []
        return marks

    def has_text(self) -> bool:
        """Returns whether a token waits to begin the next generation; drops cuts with nothing before them."""
        while self._queue and isinstance(cut := self._queue[0], _Cut):
            self._pass(cut)
            self._queue.popleft()
        return bool(self._queue)

    @property
    def next_end(self) -> int:
        """Offset in the text that the token reaches to with which a generation would begin now, after `has_text`."""
        first = self._queue[0]
        assert isinstance(first, SpeechToken)
        return first.source_end

    def next(self, taken: int, room: int) -> tuple[list[int], bool]:
        """Returns the token ids that wait for a generation, and whether it is closed with them.

        `taken`: tokens that the generation has; `room`: tokens that still fit.
        """
        ids: list[int] = []
        closed = False
        while self._queue and not closed:
            item = self._queue[0]
            if isinstance(item, _Cut):
                self._pass(item)
                closed = True
            elif len(ids) >= room:
                # No sentence ended within a full slot: cutting here loses no text.
                closed = True
                break
            else:
                ids.append(item.id)
                self.last = item
                limit = self._segment_tokens
                closed = bool(limit) and item.sentence_end and taken + len(ids) >= limit
            self._queue.popleft()
        return ids, closed or (self.ended and not self._queue)

    def _pass(self, cut: _Cut) -> None:
        if cut.mark is not None:
            self._marks.append(cut.mark)
