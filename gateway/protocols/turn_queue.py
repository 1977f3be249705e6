"""Turns: utterances that are spoken one after another, on a socket or in a context of it."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from voxgate.pipeline.errors import TextTooLong

from ..errors import Limit, RateLimited
from ..messages.client import End, Start, Text
from ..session.protocol import ProtocolAction

MAX_HELD_CHARACTERS = 65_536
"""Characters that wait for their turn, about an hour of speech.

The socket is read on while text waits: otherwise neither interrupts nor the pongs of a live client could be read.
"""
MAX_WAITING_TURNS = 256
_RETRY_MS = 1000


class SpeechTurn:
    """One utterance: the text up to a flush."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The utterance's name."""
        self.held_text = ""
        """Text that was not sent to the utterance yet."""
        self.characters = 0
        """Characters that were sent to the utterance; when it has ended, those that it accepted."""
        self.pauses = 0
        """Pauses of markup in its speech."""
        self.samples = 0
        """Samples of audio that were sent to the client."""
        self.requested = False
        """Whether the utterance was started; turns without anything to say start none."""
        self.accepted = False
        """Whether the session accepted the utterance."""
        self.text_complete = False
        """Whether the client ended the text."""
        self.ended = False
        """Whether the utterance has ended. Text that arrives later is discarded."""
        self.error_sent = False
        """Whether the client was told of an error."""


class TurnQueue:
    """Turns in order: `live` is the one being spoken, text of later turns is held until it has ended."""

    def __init__(self, start: Callable[[str], Start], numbers: Iterator[int] | None = None) -> None:
        """`start` makes the message that starts the utterance of a name.

        `numbers` are those of the names; queues of one socket share them.
        """
        self.start = start
        """May change between turns."""
        self._waiting: deque[SpeechTurn] = deque()
        self._numbers = itertools.count(1) if numbers is None else numbers
        self.live: SpeechTurn | None = None

    @property
    def idle(self) -> bool:
        """Whether there is no turn."""
        return self.live is None and not self._waiting

    @property
    def open_turn(self) -> SpeechTurn | None:
        """The turn whose text has not ended."""
        last = self._waiting[-1] if self._waiting else self.live
        return None if last is None or last.text_complete else last

    @property
    def live_finished(self) -> bool:
        """Whether the live turn waits for nothing more: its text and its utterance have ended."""
        turn = self.live
        return turn is not None and turn.text_complete and (turn.ended or not turn.requested)

    def add_text(self, text: str) -> Iterable[ProtocolAction]:
        """Appends text to the open turn, or to a new one.

        Raises TextTooLong or RateLimited when too much waits; the text is not taken then.
        """
        turn = self.open_turn
        if not self.idle and (turn is None or turn is not self.live):
            held = len(text) + sum(len(waiting.held_text) for waiting in self._waiting)
            if held > MAX_HELD_CHARACTERS:
                raise TextTooLong(MAX_HELD_CHARACTERS, held)
        turn = turn or self._append()
        turn.held_text += text
        if turn is self.live:
            yield from self._send_text(turn)

    def complete_text(self) -> Iterable[ProtocolAction]:
        """Ends the text of the open turn; without an open turn, appends an empty one.

        `live_finished` may be true at once afterwards. Raises RateLimited when too many turns wait.
        """
        turn = self.open_turn or self._append()
        turn.text_complete = True
        if turn is self.live:
            yield from self._send_end(turn)

    def complete_live(self, name: str | None) -> None:
        """Marks the live turn as complete if its utterance has this name: the session ended it by itself."""
        if self.live is not None and self.live.name == name:
            self.live.text_complete = True

    def start_next(self) -> Iterable[ProtocolAction]:
        """Makes the next turn the live one if there is none."""
        if self.live is None and self._waiting:
            self.live = turn = self._waiting.popleft()
            yield from self._send_text(turn)
            if turn.text_complete:
                yield from self._send_end(turn)

    def next_wake_s(self) -> float:
        """Minus infinity when `start_next` has something to do, infinity otherwise."""
        return -math.inf if self.live is None and self._waiting else math.inf

    def clear(self) -> None:
        """Forgets every turn."""
        self._waiting.clear()
        self.live = None

    def _append(self) -> SpeechTurn:
        if len(self._waiting) >= MAX_WAITING_TURNS:
            message = f"{MAX_WAITING_TURNS} turns are waiting already"
            raise RateLimited(message, retry_after_ms=_RETRY_MS, reached=Limit.TURNS)
        turn = SpeechTurn(f"turn-{next(self._numbers)}")
        if self.idle:
            self.live = turn
        else:
            self._waiting.append(turn)
        return turn

    def _send_text(self, turn: SpeechTurn) -> Iterable[ProtocolAction]:
        if turn.ended:
            turn.held_text = ""
        if not turn.held_text:
            return
        if not turn.requested and turn.held_text.isspace():
            # No utterance counts these characters yet, so they are bounded here.
            turn.held_text = turn.held_text[:MAX_HELD_CHARACTERS]
            return
        if not turn.requested:
            turn.requested = True
            yield self.start(turn.name)
        text, turn.held_text = turn.held_text, ""
        turn.characters += len(text)
        yield Text(type="text", utterance=turn.name, text=text)

    def _send_end(self, turn: SpeechTurn) -> Iterable[ProtocolAction]:
        if turn.requested and not turn.ended:
            yield End(type="end", utterance=turn.name)
