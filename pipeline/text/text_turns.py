"""Divides the event loop's time for text, so that a text of thousands of characters does not stop the loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum

from ..errors import GenerationFailed, VoxgateError

CHARACTERS_PER_TURN = 64
"""Characters of all utterances that are processed in one turn of the event loop: about 50 µs each at worst. Tokens do
not depend on how a text is cut."""
FLUSH_CHARACTERS = 16
"""What a flush or the end counts as: it processes the text that was held back."""

ALIGNMENT_CHARACTERS = 32
"""What the alignment of a few frames counts as, where an interrupt asks for the text that was spoken: 2 ms at worst."""

log = logging.getLogger(__name__)


class TextTurns:
    """The budget of one event loop; utterances with waiting text take turns. Not thread-safe."""

    def __init__(self, characters: int = CHARACTERS_PER_TURN) -> None:
        self._characters = self.left = characters
        """`left`: characters that may still be processed in this turn of the loop."""
        self._waiting: deque[PendingText] = deque()
        self._scheduled = False

    def spend(self, characters: int) -> None:
        """Counts characters that are processed now; the next turn of the loop has the whole budget again."""
        self.left -= characters
        self._schedule()

    def wait(self, text: PendingText) -> None:
        """Has `text.step` called until it has nothing left."""
        self._waiting.append(text)
        self._schedule()

    def forget(self, text: PendingText) -> None:
        """Calls `text.step` no more."""
        if text in self._waiting:
            self._waiting.remove(text)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled, self.left = False, self._characters
        while self._waiting and self.left > 0:
            text = self._waiting.popleft()
            text.step()
            if text:
                self.wait(text)
        if self._waiting:
            self._schedule()


class _Mark(Enum):
    FLUSH = "flush"
    END = "end"


class PendingText:
    """What one utterance was sent and the loop had no time for yet, in order; true while there is something.

    `push`, `flush` and `end` process text. Their errors are raised to the caller while nothing waits; later, `fail` is
    called with them.
    """

    def __init__(
        self,
        turns: TextTurns,
        push: Callable[[str], None],
        flush: Callable[[], None],
        end: Callable[[], None],
        fail: Callable[[VoxgateError], None],
    ) -> None:
        self._turns = turns
        self._process, self._marks = push, {_Mark.FLUSH: flush, _Mark.END: end}
        self._fail = fail
        self._waiting: deque[str | _Mark] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def push(self, fragment: str) -> None:
        """Processes what the budget allows, and the rest later."""
        if not self._waiting:
            fragment = self._take(fragment)
        if fragment:
            self._append(fragment)

    def flush(self) -> None:
        """Flushes behind the text before it."""
        self._mark(_Mark.FLUSH)

    def end(self) -> None:
        """Ends behind the text before it."""
        self._mark(_Mark.END)

    def clear(self) -> None:
        """Drops what waits."""
        self._waiting.clear()
        self._turns.forget(self)

    def step(self) -> None:
        """Processes the next part, within the budget. Never raises."""
        item = self._waiting.popleft()
        try:
            if isinstance(item, _Mark):
                self._process_mark(item)
            elif rest := self._take(item):
                self._waiting.appendleft(rest)
        except VoxgateError as error:
            self._waiting.clear()
            self._fail(error)
        except Exception:
            log.exception("processing text failed")
            self._waiting.clear()
            self._fail(GenerationFailed("the text could not be processed"))

    def _take(self, text: str) -> str:
        """Processes the beginning of `text`; returns the rest."""
        count = min(len(text), max(0, self._turns.left))
        if count:
            self._turns.spend(count)
            self._process(text[:count])
        return text[count:]

    def _mark(self, mark: _Mark) -> None:
        if self._waiting or self._turns.left <= 0:
            self._append(mark)
        else:
            self._process_mark(mark)

    def _process_mark(self, mark: _Mark) -> None:
        self._turns.spend(FLUSH_CHARACTERS)
        self._marks[mark]()

    def _append(self, item: str | _Mark) -> None:
        if not self._waiting:
            self._turns.wait(self)
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, str) and isinstance(item, str):
            self._waiting[-1] = last + item
        elif item is not last:  # a second flush has no effect
            self._waiting.append(item)
