"""Admission: grants talker slots to utterances, as many as the engine can carry, through a bounded fair queue.

Limits count active utterances, not sockets, because the socket of a voice agent is silent most of the time. Callers
(API keys; without keys, addresses) take turns; the utterances of one caller are served in order. A ticket waits at
most `wait_ms`: its owner checks `Ticket.deadline_s` and releases it. A slot becomes free only when the engine has
confirmed the end of its speech.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from voxgate.pipeline.errors import AtCapacity, VoxgateError
from voxgate.pipeline.interface import LeasedSlots, Synthesizer

from ..access.caller import Caller
from ..errors import QUEUE_RETRY_MIN_MS
from ..settings import Settings

_INITIAL_HOLD_MS = 4000.0
"""Assumed time that an utterance holds its slot, until some have been measured."""
_SMOOTHING = 0.1
"""Weight of a new measurement in the mean hold time."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One utterance's place in the queue, or its slot.

    `on_change(ticket, now_s)` is called when the position changes and when the slot is granted or refused.
    """

    caller: Caller
    deadline_s: float
    on_change: Callable[[Ticket, float], None] = field(repr=False)
    position: int = 0
    """Position in the queue from 1; 0 while it holds a slot, and before the position is known."""
    eta_ms: int = 0
    """Expected time until the slot is granted."""
    granted_s: float | None = None
    """When the slot was granted."""
    lease: LeasedSlots | None = None
    """The leased slots, where another process owns them."""
    error: VoxgateError | None = None
    """Why no slot will be granted, where that was not known in `Admission.enqueue`."""
    closed: bool = False
    """Whether the ticket was released."""

    @property
    def granted(self) -> bool:
        return self.granted_s is not None


class Admission(Protocol):
    """What sessions need of admission: `AdmissionQueue`, or a worker's proxy of it (`workers.remote_admission`)."""

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
        """Returns a ticket with a slot or a place in the queue.

        Raises KeyLimit and AtCapacity, unless they are reported later by `Ticket.error`.
        """

    def release(self, ticket: Ticket, now_s: float) -> None:
        """Gives the slot back, or leaves the queue. Safe to call twice."""

    def capacity_error(self, reason: str) -> AtCapacity:
        """Returns the error for an utterance that cannot wait any longer."""


class AdmissionQueue:
    """Grants slots. Synchronous; time is an argument.

    `slots()` is how many utterances may be active now, which can fall below the number of active ones. `free_slots()`
    is how many of the engine's own slots are free, so that one whose end is not confirmed yet counts as used.
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
        """Tickets by the caller's name; the order of the dict is the order of turns."""
        self._queued = 0
        self._mean_hold_ms = _INITIAL_HOLD_MS

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
        """Returns a ticket with a slot or a place in the queue. Raises KeyLimit; AtCapacity when the queue is full."""
        caller.check_utterance()
        ticket = Ticket(caller, now_s + self._wait_s, on_change)
        if not self._queued and self._free() > 0:
            caller.utterances += 1
            self._grant(ticket, now_s)
            return ticket
        if self._queued >= self._queue_length:
            raise self.capacity_error("all talker slots and all places in the queue are in use")
        self._waiting.setdefault(caller.name, deque()).append(ticket)
        caller.utterances += 1
        self._queued += 1
        self._renumber(now_s, silent=ticket)
        return ticket

    def release(self, ticket: Ticket, now_s: float) -> None:
        """Gives the slot back, or leaves the queue. Safe to call twice."""
        if ticket.closed:
            return
        ticket.closed = True
        ticket.caller.utterances -= 1
        if ticket.granted_s is not None:
            self._holding -= 1
            held_ms = (now_s - ticket.granted_s) * 1000
            self._mean_hold_ms += _SMOOTHING * (held_ms - self._mean_hold_ms)
        else:
            queue = self._waiting[ticket.caller.name]
            queue.remove(ticket)
            self._queued -= 1
            if not queue:
                del self._waiting[ticket.caller.name]
        self.admit(now_s)

    def admit(self, now_s: float) -> None:
        """Grants free slots to waiting tickets. Call it whenever `slots` or `free_slots` may have grown."""
        if not self._queued:
            return
        granted: list[Ticket] = []
        free = self._free()
        while self._queued and len(granted) < free:
            name, queue = next(iter(self._waiting.items()))
            ticket = queue.popleft()
            self._queued -= 1
            # The caller's next turn comes after those of all others.
            del self._waiting[name]
            if queue:
                self._waiting[name] = queue
            self._grant(ticket, now_s)
            granted.append(ticket)
        self._renumber(now_s)
        for ticket in granted:
            ticket.on_change(ticket, now_s)

    def capacity_error(self, reason: str) -> AtCapacity:
        """Returns the error for an utterance that cannot wait any longer, with the time until a slot is likely."""
        return AtCapacity(reason, retry_after_ms=max(QUEUE_RETRY_MIN_MS, self._eta_ms(self._queued + 1)))

    def _grant(self, ticket: Ticket, now_s: float) -> None:
        self._holding += 1
        ticket.granted_s = now_s
        ticket.position = ticket.eta_ms = 0

    def _free(self) -> float:
        return min(self._slots() - self._holding, self._free_slots())

    def _eta_ms(self, position: int) -> int:
        """Expected wait at `position`: slots become free one by one; those above the limit are not granted again."""
        releases = position + max(0, self._holding - self._slots())
        return math.ceil(self._mean_hold_ms * releases / max(1, self._holding))

    def _renumber(self, now_s: float, silent: Ticket | None = None) -> None:
        """Updates positions and calls `on_change` of the tickets that moved, except of `silent`."""
        moved = []
        for position, ticket in enumerate(self._round_robin(), start=1):
            if ticket.position != position:
                ticket.position, ticket.eta_ms = position, self._eta_ms(position)
                if ticket is not silent:
                    moved.append(ticket)
        for ticket in moved:
            ticket.on_change(ticket, now_s)

    def _round_robin(self) -> Iterator[Ticket]:
        """Yields waiting tickets in the order in which they will be granted."""
        queues = [iter(queue) for queue in self._waiting.values()]
        while queues:
            remaining = []
            for queue in queues:
                if (ticket := next(queue, None)) is not None:
                    yield ticket
                    remaining.append(queue)
            queues = remaining


class CapacityPolicy:
    """How many utterances `AdmissionQueue` may admit: the engine's capacity within the configured limit."""

    def __init__(self, settings: Settings, synthesizer: Synthesizer) -> None:
        self._settings, self._synthesizer = settings, synthesizer

    def slots(self) -> int:
        """Utterances that may be active at once."""
        limit, capacity = self._settings.active_utterances, self._synthesizer.capacity
        return capacity if limit is None else min(limit, capacity)

    def free_slots(self) -> float:
        """Free slots of the talker; infinity without an engine, so that utterances fail at once instead of waiting."""
        return self._synthesizer.free_slots if self._synthesizer.state.speaks else math.inf
