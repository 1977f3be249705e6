"""An utterance's tokens on their way to the talker, and where one generation's end and the next's begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .text.utterance import SpeechToken


@dataclass(frozen=True, slots=True)
class _Cut:
    """Stands among the tokens where those before are to be spoken to their end."""


class Script:
    """Cut where it is flushed, at the first sentence's end after `segment_tokens` tokens (0: nowhere), and where a
    generation has no more room. Synchronous.
    """

    def __init__(self, segment_tokens: int) -> None:
        self._segment_tokens = segment_tokens
        self._queue: deque[SpeechToken | _Cut] = deque()
        self.ended = False
        """No more is added."""
        self.last: SpeechToken | None = None
        """The last token that was handed out."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, tokens: Sequence[SpeechToken]) -> None:
        self._queue.extend(tokens)

    def cut(self) -> None:
        """What was added so far is to be spoken to its end."""
        self._queue.append(_Cut())

    def has_text(self) -> bool:
        """Whether a token waits for the next generation to begin with; cuts with nothing before them are dropped."""
        while self._queue and isinstance(self._queue[0], _Cut):
            self._queue.popleft()
        return bool(self._queue)

    def next(self, taken: int, room: int) -> tuple[list[int], bool]:
        """The ids that wait for a generation, which has `taken` so many and room for so many, and whether it is
        closed with them."""
        ids: list[int] = []
        closed = False
        while self._queue and not closed:
            item = self._queue[0]
            if isinstance(item, _Cut):
                closed = True
            elif len(ids) >= room:
                # No sentence ended in all the slot holds: cut where we are rather than lose text.
                closed = True
                break
            else:
                ids.append(item.id)
                self.last = item
                limit = self._segment_tokens
                closed = bool(limit) and item.sentence_end and taken + len(ids) >= limit
            self._queue.popleft()
        return ids, closed or (self.ended and not self._queue)
