"""Turns: utterances that are heard one after another on a socket whose audio does not say to which it belongs."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable

from voxgate.pipeline.errors import TextTooLong

from ..errors import RateLimited
from ..messages import End, Start, Text
from ..session.protocol import ProtocolAction

MAX_HELD_CHARACTERS = 65_536
"""Characters that wait for their turn: an hour of speech. A socket that is left unread would not do: what interrupts
the speech could not be read either, nor the pongs that tell a client that listens from one that is gone."""
MAX_WAITING_TURNS = 256
"""Turns."""
_RETRY_MS = 1000


class SpeechTurn:
    """One utterance: text from its first `Speak` to its `Flush`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = ""
        """Text that was not given to an utterance yet."""
        self.characters = 0
        """Of text that was given to the utterance; in the end, of what it took."""
        self.samples = 0
        """Of audio that was sent."""
        self.started = False
        """The utterance was asked for: there is something to say."""
        self.taken = False
        """The session has it."""
        self.complete = False
        """Its text has ended."""
        self.over = False
        """Its utterance has ended; if before its text, what still comes is not spoken."""
        self.failed = False
        """The client was told of an error."""


class TurnQueue:
    """`live` is the turn being spoken; text of later ones is held back until it is over."""

    def __init__(self, start: Callable[[str], Start]) -> None:
        self._start = start
        self._waiting: deque[SpeechTurn] = deque()
        self._numbers = itertools.count(1)
        self.live: SpeechTurn | None = None

    @property
    def idle(self) -> bool:
        return self.live is None and not self._waiting

    def speak(self, text: str) -> Iterable[ProtocolAction]:
        """Text for the turn that is open, or for a new one. Raises TextTooLong, RateLimited; it is not taken then."""
        turn = self.open_turn
        if not self.idle and (turn is None or turn is not self.live):
            held = len(text) + sum(len(waiting.held) for waiting in self._waiting)
            if held > MAX_HELD_CHARACTERS:
                raise TextTooLong(MAX_HELD_CHARACTERS, held)
        turn = turn or self._add()
        turn.held += text
        if turn is self.live:
            yield from self._give(turn)

    @property
    def open_turn(self) -> SpeechTurn | None:
        """The turn whose text has not ended."""
        last = self._waiting[-1] if self._waiting else self.live
        return None if last is None or last.complete else last

    def complete(self) -> Iterable[ProtocolAction]:
        """The text of the open turn has ended; without one, an empty turn takes its place in the row.

        Afterwards `finished` may be true at once. Raises RateLimited when too many wait.
        """
        turn = self.open_turn or self._add()
        turn.complete = True
        if turn is self.live:
            yield from self._end(turn)

    def close(self, name: str | None) -> None:
        """The turn of that name was ended for its client: what is written next is a turn of its own."""
        if self.live is not None and self.live.name == name:
            self.live.complete = True

    @property
    def finished(self) -> bool:
        """The live turn needs nothing more of its utterance."""
        turn = self.live
        return turn is not None and turn.complete and (turn.over or not turn.started)

    def next(self) -> Iterable[ProtocolAction]:
        """Let the next turn speak, when none is live."""
        if self.live is None and self._waiting:
            self.live = turn = self._waiting.popleft()
            yield from self._give(turn)
            if turn.complete:
                yield from self._end(turn)

    def next_wake_s(self) -> float:
        return -math.inf if self.live is None and self._waiting else math.inf

    def drop(self) -> None:
        """Forget every turn."""
        self._waiting.clear()
        self.live = None

    def _add(self) -> SpeechTurn:
        if len(self._waiting) >= MAX_WAITING_TURNS:
            raise RateLimited(f"{MAX_WAITING_TURNS} turns wait to be spoken", retry_after_ms=_RETRY_MS)
        turn = SpeechTurn(f"turn-{next(self._numbers)}")
        if self.idle:
            self.live = turn
        else:
            self._waiting.append(turn)
        return turn

    def _give(self, turn: SpeechTurn) -> Iterable[ProtocolAction]:
        if turn.over:
            turn.held = ""
        if not turn.held:
            return
        if not turn.started and turn.held.isspace():
            turn.held = turn.held[
                :MAX_HELD_CHARACTERS
            ]  # no utterance counts them: the rest of many blanks says nothing either
            return
        if not turn.started:
            turn.started = True
            yield self._start(turn.name)
        text, turn.held = turn.held, ""
        turn.characters += len(text)
        yield Text(type="text", utterance=turn.name, text=text)

    def _end(self, turn: SpeechTurn) -> Iterable[ProtocolAction]:
        if turn.started and not turn.over:
            yield End(type="end", utterance=turn.name)
