"""Admission: grants talker slots to utterances, as many as the engine can carry, through a bounded fair queue.

Limits count active utterances, not sockets, because the socket of a voice agent is silent most of the time. Callers
(API keys; without keys, addresses) take turns: the caller whose last turn is longest ago comes first, also when it has
asked several times in vain. The utterances of one caller are served in order. While several callers are present, each
gets at most its share of places in the queue (`access.caller_share`), and of slots when few are free: those are kept
for callers below their share. A ticket waits at most `wait_ms`: its owner checks `Ticket.deadline_s` and releases it. A
slot becomes free only when the engine has confirmed the end of its speech.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from voxgate.pipeline.errors import AtCapacity, VoxgateError
from voxgate.pipeline.interface import LeasedSlots, Synthesizer

from ..access.caller import Caller
from ..access.caller_share import CallerShare
from ..errors import QUEUE_RETRY_MIN_MS, Limit
from ..settings import Settings

_INITIAL_HOLD_MS = 4000.0
"""Assumed time that an utterance holds its slot, until some have been measured."""
_DEADLINE_SLACK_S = 0.1
"""A ticket released this long before its deadline was refused: a worker's clock starts when it sends the request."""
_RESERVE = 0.1
"""Part of the slots, at least one, that only callers below their share get."""
_SMOOTHING = 0.1
"""Weight of a new measurement in the mean hold time."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One utterance's place in the queue, or its slot.

    `on_change(ticket, now_s)` is called when the position changes, when the slot is granted or refused, and when it is
    granted again in the next engine.
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
    """Why no slot will be granted, where that was not known in `Admission.enqueue`; the place in the queue is lost."""
    closed: bool = False
    """Whether the ticket was released."""

    @property
    def granted(self) -> bool:
        return self.granted_s is not None

    @property
    def pending(self) -> bool:
        """Whether the answer is still on its way."""
        return not (self.granted or self.position or self.error)

    def forget_owner(self) -> None:
        """Calls `on_change` no more: ticket and owner do not refer to each other then, and are freed at once."""
        self.on_change = _ignore_change


def _ignore_change(ticket: Ticket, now_s: float) -> None:
    """What released tickets call."""


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

    def enqueue(
        self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float, *, resumes: bool = False
    ) -> Ticket:
        """Returns a ticket with a slot or a place in the queue; with `resumes` before the caller's other tickets.

        Raises KeyLimit and AtCapacity, unless they are reported later by `Ticket.error`.
        """

    def release(self, ticket: Ticket, now_s: float) -> None:
        """Gives the slot back, or leaves the queue. Safe to call twice."""

    def capacity_error(self, reason: str, reached: Limit) -> AtCapacity:
        """Returns the error for an utterance that cannot wait any longer, because of the limit `reached`."""


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
        caller_share: float = 1.0,
    ) -> None:
        self._slots, self._free_slots = slots, free_slots
        self._queue_length = queue_length
        self._wait_s = wait_ms / 1000
        self._granted: dict[Ticket, None] = {}
        """Tickets that hold a slot, in the order of their grants."""
        self._held: Counter[str] = Counter()
        """Slots by the caller's name."""
        self._waiting: dict[str, deque[Ticket]] = {}
        """Tickets by the caller's name, in the order in which callers began to wait."""
        self._grants = 0
        self._last_turn: dict[str, int] = {}
        """Number of the last grant of each caller that holds or waits for a slot."""
        self._queued = 0
        self._share = CallerShare(caller_share)
        self._mean_hold_ms = _INITIAL_HOLD_MS

    @property
    def active(self) -> int:
        return len(self._granted)

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def slots(self) -> int:
        return self._slots()

    def enqueue(
        self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float, *, resumes: bool = False
    ) -> Ticket:
        """Returns a ticket with a slot or a place in the queue; with `resumes` before the caller's other tickets.

        Raises KeyLimit; AtCapacity when the caller has its share of the queue, or the queue is full. A full queue drops
        the newest ticket of the caller with most tickets for a caller that has fewer, also with the new one.
        """
        caller.check_utterance()
        self.admit(now_s)  # slots may have become free since the last call
        ticket = Ticket(caller, now_s + self._wait_s, on_change)
        if self._free() > 0 and self._may_speak(caller.name, now_s) and self._next_caller(now_s) is None:
            self._count(ticket)
            self._grant(ticket, now_s)
            return ticket
        dropped = self._make_room(caller.name, now_s)
        queue = self._waiting.setdefault(caller.name, deque())
        # An utterance that gave its slot up is being listened to: the next word comes before new utterances.
        queue.insert(0 if resumes else len(queue), ticket)
        self._count(ticket)
        self._queued += 1
        self._renumber(now_s, silent=ticket)
        if dropped is not None:
            dropped.on_change(dropped, now_s)
        return ticket

    def release(self, ticket: Ticket, now_s: float) -> None:
        """Gives the slot back, or leaves the queue. Safe to call twice."""
        ticket.forget_owner()
        if ticket.closed:
            return
        if ticket.granted_s is None:
            self._leave_queue(ticket)
            if now_s >= ticket.deadline_s - _DEADLINE_SLACK_S:
                self._share.refuse(ticket.caller.name, now_s)
        else:
            self._close(ticket)
            del self._granted[ticket]
            self._held[ticket.caller.name] -= 1
            if not self._held[ticket.caller.name]:
                del self._held[ticket.caller.name]
            held_ms = (now_s - ticket.granted_s) * 1000
            self._mean_hold_ms += _SMOOTHING * (held_ms - self._mean_hold_ms)
        self.admit(now_s)

    def renew(self, now_s: float) -> None:
        """The engine was started again: utterances that hold a slot go on in it before others are admitted."""
        for ticket in tuple(self._granted):
            ticket.on_change(ticket, now_s)
        self.admit(now_s)

    def admit(self, now_s: float) -> None:
        """Grants free slots to waiting tickets. Call it often, and when `slots` or `free_slots` may have grown."""
        if not self._queued:
            return
        granted: list[Ticket] = []
        free = self._free()
        while len(granted) < free and (name := self._next_caller(now_s)) is not None:
            queue = self._waiting[name]
            ticket = queue.popleft()
            self._queued -= 1
            if not queue:
                del self._waiting[name]
            self._grant(ticket, now_s)
            granted.append(ticket)
        self._renumber(now_s)
        for ticket in granted:
            ticket.on_change(ticket, now_s)

    def capacity_error(self, reason: str, reached: Limit) -> AtCapacity:
        """Returns the error for an utterance that cannot wait any longer, with the time until a slot is likely."""
        return AtCapacity(reason, retry_after_ms=self.retry_ms, reached=reached)

    @property
    def retry_ms(self) -> int:
        """Time until a slot is likely for one more utterance."""
        return max(QUEUE_RETRY_MIN_MS, self._eta_ms(self._queued + 1))

    def _make_room(self, name: str, now_s: float) -> Ticket | None:
        """Finds a place in the queue for `name`; returns the ticket that lost its own for it. Raises AtCapacity."""
        waiting = len(self._waiting.get(name, ()))
        has_share = waiting >= self._share.limit(name, self._queue_length, now_s)
        if has_share and waiting < self._queue_length:
            reason = "this caller has its share of the places in the queue"
            raise self._refusal(name, reason, Limit.QUEUE_SHARE, now_s)
        if self._queued < self._queue_length:
            return None
        longest = max(self._waiting.values(), key=len, default=deque[Ticket]())
        if has_share or len(longest) <= waiting + 1:
            reason = "all talker slots and all places in the queue are in use"
            raise self._refusal(name, reason, Limit.QUEUE, now_s)
        dropped = longest[-1]
        self._leave_queue(dropped)
        reason = "the queue is full, and another caller has fewer places in it"
        dropped.error = self._refusal(dropped.caller.name, reason, Limit.QUEUE_SHARE, now_s)
        return dropped

    def _refusal(self, name: str, reason: str, reached: Limit, now_s: float) -> AtCapacity:
        self._share.refuse(name, now_s)
        return self.capacity_error(reason, reached)

    def _count(self, ticket: Ticket) -> None:
        ticket.caller.utterances += 1
        self._share.acquire(ticket.caller.name)

    def _close(self, ticket: Ticket) -> None:
        ticket.closed = True
        ticket.caller.utterances -= 1
        self._share.release(ticket.caller.name)
        if not self._share.held(ticket.caller.name):
            self._last_turn.pop(ticket.caller.name, None)

    def _leave_queue(self, ticket: Ticket) -> None:
        self._close(ticket)
        queue = self._waiting[ticket.caller.name]
        queue.remove(ticket)
        self._queued -= 1
        if not queue:
            del self._waiting[ticket.caller.name]

    def _may_speak(self, name: str, now_s: float) -> bool:
        """Returns whether the caller has less than its share of the slots, or more are free than the reserve."""
        slots = self._slots()
        reserve = max(1, math.ceil(_RESERVE * slots))
        return slots - len(self._granted) > reserve or self._held[name] < self._share.limit(name, slots, now_s)

    def _next_caller(self, now_s: float) -> str | None:
        """Returns the caller that gets the next slot; None when none waits, or all have their share."""
        return next((name for name in self._by_turn() if self._may_speak(name, now_s)), None)

    def _by_turn(self) -> list[str]:
        """Waiting callers in the order of their turns. A caller that has just come has had none."""
        return sorted(self._waiting, key=lambda name: self._last_turn.get(name, 0))

    def _grant(self, ticket: Ticket, now_s: float) -> None:
        self._granted[ticket] = None
        self._held[ticket.caller.name] += 1
        self._grants += 1
        self._last_turn[ticket.caller.name] = self._grants
        ticket.granted_s = now_s
        ticket.position = ticket.eta_ms = 0

    def _free(self) -> float:
        return min(self._slots() - len(self._granted), self._free_slots())

    def _eta_ms(self, position: int) -> int:
        """Expected wait at `position`: slots become free one by one; those above the limit are not granted again."""
        holding = len(self._granted)
        releases = position + max(0, holding - self._slots())
        return math.ceil(self._mean_hold_ms * releases / max(1, holding))

    def _renumber(self, now_s: float, silent: Ticket | None = None) -> None:
        """Updates positions and calls `on_change` of the tickets that moved, except of `silent`."""
        moved = []
        for position, ticket in enumerate(self._turns(now_s), start=1):
            if ticket.position != position:
                ticket.position, ticket.eta_ms = position, self._eta_ms(position)
                if ticket is not silent:
                    moved.append(ticket)
        for ticket in moved:
            ticket.on_change(ticket, now_s)

    def _turns(self, now_s: float) -> Iterator[Ticket]:
        """Yields waiting tickets in the order in which slots are granted, as far as is known now.

        Callers take turns; those that would have their share of the slots even with one slot less come last.
        """
        first: list[deque[Ticket]] = []
        last: list[deque[Ticket]] = []
        for name in self._by_turn():
            above = self._held[name] > self._share.limit(name, self._slots(), now_s)
            (last if above else first).append(self._waiting[name])
        for queues in (first, last):
            for round_of_turns in zip_longest(*queues):
                yield from (ticket for ticket in round_of_turns if ticket is not None)


class CapacityPolicy:
    """How many utterances `AdmissionQueue` may admit: the engine's capacity within the configured limit."""

    def __init__(self, settings: Settings, synthesizer: Synthesizer) -> None:
        self._settings, self._synthesizer = settings, synthesizer

    def slots(self) -> int:
        """Utterances that may be active at once."""
        limit, capacity = self._settings.active_utterances, self._synthesizer.capacity
        return capacity if limit is None else min(limit, capacity)

    def free_slots(self) -> float:
        """Free slots of the talker; 0 without an engine, which restarts by itself."""
        return self._synthesizer.free_slots if self._synthesizer.state.speaks else 0
