"""Who may speak: as many as the engine carries, and a bounded, fair queue in front of them.

Limits count active utterances, not sockets: an agent's socket is silent most of the time. The queue takes
turns between callers (a key; without keys an address), first come first served within one. Nobody waits longer
than `wait_ms`; who waits looks at `Ticket.deadline_s` and leaves. A slot is given back only when the engine
confirmed the end of its speech.
"""
# TODO-DOC How much the voice model has room for, within what the settings allow.

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from voxgate.pipeline.errors import AtCapacity, VoxgateError
from voxgate.pipeline.interface import LeasedSlots, Synthesizer

from ..access.usage import Caller
from ..settings import Settings, SettingsError

_FIRST_GUESS_MS = 4000.0
"""How long an utterance holds its slot, until some were seen."""
_SMOOTHING = 0.1
_RETRY_MIN_MS = 250


@dataclass(eq=False, slots=True)
class Ticket:
    """One utterance's place. `on_change` is called when the position changes and when the slot is granted."""

    caller: Caller
    deadline_s: float
    on_change: Callable[[Ticket, float], None] = field(repr=False)
    position: int = 0
    """1 is next; 0 while it holds a slot, and before it is known."""
    eta_ms: int = 0
    granted_s: float | None = None
    lease: LeasedSlots | None = None
    """The slot's own place, where slots are another process's."""
    error: VoxgateError | None = None
    """Why it will never be granted, where that was not known at once."""
    closed: bool = False

    @property
    def granted(self) -> bool:
        return self.granted_s is not None


class Admission(Protocol):
    """What sessions ask for a slot: `AdmissionQueue`, or the way to it in another process."""

    @property
    def active(self) -> int:
        """Utterances that hold a slot."""

    @property
    def queued(self) -> int:
        """Utterances that wait for one."""

    @property
    def slots(self) -> int:
        """Utterances that may hold one now."""

    def enqueue(self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float) -> Ticket:
        """Take a slot or a place in the queue. Raises KeyLimit, AtCapacity, unless that is told by the ticket later."""

    def release(self, ticket: Ticket, now_s: float) -> None:
        """Give the slot back, or stop waiting. Safe to call twice."""

    def capacity_error(self, why: str) -> AtCapacity:
        """The error for one who cannot wait here any longer."""


class AdmissionQueue:
    """Grants slots. Synchronous; time comes in as an argument.

    `slots`: utterances that may be under way now, which can fall below those that are; `free_slots`: of the engine's
    own slots, those that nobody holds, so that one whose end was never confirmed counts as taken.
    """

    def __init__(
        self,
        slots: Callable[[], int],
        queue_length: int,
        wait_ms: int,
        free_slots: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._slots, self._free_slots = slots, free_slots
        self._queue_length = queue_length
        self._wait_s = wait_ms / 1000
        self._holding = 0
        self._waiting: dict[str, deque[Ticket]] = {}
        """By caller's name; the dict's order is the order of turns."""
        self._queued = 0
        self._mean_ms = _FIRST_GUESS_MS

    @property
    def active(self) -> int:
        return self._holding

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def slots(self) -> int:
        return self._slots()

    def enqueue(self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float) -> Ticket:
        """Take a slot or a place in the queue. Raises KeyLimit, and AtCapacity when the queue is full."""
        caller.check_utterance()
        ticket = Ticket(caller, now_s + self._wait_s, on_change)
        if not self._queued and self._room() > 0:
            caller.utterances += 1
            self._hold(ticket, now_s)
            return ticket
        if self._queued >= self._queue_length:
            raise self.capacity_error(
                "as many speak as can be heard without a gap, and every place in the queue is taken"
            )
        self._waiting.setdefault(caller.name, deque()).append(ticket)
        caller.utterances += 1
        self._queued += 1
        self._renumber(now_s, quiet=ticket)
        return ticket

    def release(self, ticket: Ticket, now_s: float) -> None:
        """Give the slot back, or stop waiting. Safe to call twice."""
        if ticket.closed:
            return
        ticket.closed = True
        ticket.caller.utterances -= 1
        if ticket.granted_s is not None:
            self._holding -= 1
            held_ms = (now_s - ticket.granted_s) * 1000
            self._mean_ms += _SMOOTHING * (held_ms - self._mean_ms)
        else:
            queue = self._waiting[ticket.caller.name]
            queue.remove(ticket)
            self._queued -= 1
            if not queue:
                del self._waiting[ticket.caller.name]
        self.admit(now_s)

    def admit(self, now_s: float) -> None:
        """Let those in who wait, as far as there is room; call it also when there may be more of it."""
        if not self._queued:
            return
        granted: list[Ticket] = []
        room = self._room()
        while self._queued and len(granted) < room:
            key, queue = next(iter(self._waiting.items()))
            ticket = queue.popleft()
            self._queued -= 1
            # The key's next turn comes after everybody else's.
            del self._waiting[key]
            if queue:
                self._waiting[key] = queue
            self._hold(ticket, now_s)
            granted.append(ticket)
        self._renumber(now_s)
        for ticket in granted:
            ticket.on_change(ticket, now_s)

    def capacity_error(self, why: str) -> AtCapacity:
        """The error for one who cannot wait here any longer."""
        return AtCapacity(why, retry_after_ms=max(_RETRY_MIN_MS, self._eta_ms(self._queued + 1)))

    def _hold(self, ticket: Ticket, now_s: float) -> None:
        self._holding += 1
        ticket.granted_s = now_s
        ticket.position = ticket.eta_ms = 0

    def _room(self) -> float:
        return min(self._slots() - self._holding, self._free_slots())

    def _eta_ms(self, position: int) -> int:
        """Those who speak leave one by one; some of them first, when more speak than should."""
        leaving = position + max(0, self._holding - self._slots())
        return math.ceil(self._mean_ms * leaving / max(1, self._holding))

    def _renumber(self, now_s: float, quiet: Ticket | None = None) -> None:
        moved = []
        for position, ticket in enumerate(self._in_turn(), start=1):
            if ticket.position != position:
                ticket.position, ticket.eta_ms = position, self._eta_ms(position)
                if ticket is not quiet:
                    moved.append(ticket)
        for ticket in moved:
            ticket.on_change(ticket, now_s)

    def _in_turn(self) -> Iterator[Ticket]:
        """Waiting tickets in the order they will be granted."""
        rows = [iter(queue) for queue in self._waiting.values()]
        while rows:
            left = []
            for row in rows:
                if (ticket := next(row, None)) is not None:
                    yield ticket
                    left.append(row)
            rows = left


log = logging.getLogger(__name__)


class CapacityPolicy:
    """What admission asks, however many processes the gateway is."""

    def __init__(self, settings: Settings, synthesizer: Synthesizer) -> None:
        self._settings, self._synthesizer = settings, synthesizer

    def slots(self) -> int:
        """Utterances that may be under way at once."""
        limit, capacity = self._settings.active_utterances, self._synthesizer.capacity
        return capacity if limit is None else min(limit, capacity)

    def free_slots(self) -> float:
        """Slots of the talker's that are free. Without an engine nobody has to wait for one to be told so."""
        return self._synthesizer.free_slots if self._synthesizer.state.speaks else math.inf

    def check_voices(self) -> None:
        """Raises SettingsError when the model has not the voice that the settings name; warns of an alias for none."""
        voice, voices = self._settings.voice, self._synthesizer.voices
        listed = ", ".join(voices) or "none yet"
        if voice is not None and voice.lower() not in voices:
            raise SettingsError(f"voice {voice!r} is not one of the model's: {listed}")
        for name, meant in self._settings.aliases.items():
            if meant not in voices:  # it may still be made of a recording
                log.warning(
                    "voice_aliases: %s means %s, which is not one of the model's voices: %s", name, meant, listed
                )
