"""Admission as a worker's sessions see it: the speech process decides for all workers, and its word comes later."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from voxgate.pipeline.errors import AtCapacity, VoxgateError
from voxgate.pipeline.interface import LeasedSlots
from voxgate.pipeline.ipc.engine_messages import Message

from ..access.usage import Caller
from ..errors import KeyLimit
from ..session.admission import Ticket
from .messages import Join, Leave, Status, TicketGranted, TicketMoved, TicketRefused

FIRST_REPLY_S = 2.0
"""So long at least a ticket waits for the first word on it, however short the wait in the queue may be."""

_REFUSALS: dict[str, type[VoxgateError]] = {error.code: error for error in (AtCapacity, KeyLimit)}


class RemoteAdmission:
    """The `Admission` of a worker. Synchronous; `send` tells the speech process.

    A ticket that it has given nothing on yet has no position; who waits too long for that leaves as one in the queue,
    but not before there was time for a word: with a wait of zero nobody would ever be let in.
    """

    def __init__(self, wait_ms: int, send: Callable[[Message], None]) -> None:
        self._wait_s = wait_ms / 1000
        self._send = send
        self._numbers = itertools.count(1)
        self._open: dict[int, Ticket] = {}
        self._number_of: dict[Ticket, int] = {}
        self._wait_until_s: dict[int, float] = {}
        """How long each may stand in the queue."""
        self.active = self.queued = self.slots = 0
        self._retry_ms = 1000

    def update_status(self, status: Status) -> None:
        """What the speech process says of all."""
        self.active, self.queued, self.slots = status.active, status.queued, status.slots
        self._retry_ms = status.retry_ms

    def enqueue(self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float) -> Ticket:
        ticket = Ticket(caller, now_s + max(self._wait_s, FIRST_REPLY_S), on_change)
        number = next(self._numbers)
        self._open[number] = ticket
        self._wait_until_s[number] = now_s + self._wait_s
        self._number_of[ticket] = number
        caller.utterances += 1
        self._send(Join(number, caller.name, caller.limits.utterances))
        return ticket

    def release(self, ticket: Ticket, now_s: float) -> None:  # noqa: ARG002 - the gate's signature
        if ticket.closed:
            return
        ticket.closed = True
        ticket.caller.utterances -= 1
        number = self._number_of.pop(ticket)
        del self._open[number], self._wait_until_s[number]
        self._send(Leave(number))

    def capacity_error(self, why: str) -> AtCapacity:
        return AtCapacity(why, retry_after_ms=self._retry_ms)

    def take(self, word: TicketGranted | TicketMoved | TicketRefused, now_s: float) -> None:
        """The speech process's word on a ticket; nobody's when that was given back meanwhile."""
        if (ticket := self._open.get(word.ticket)) is None:
            return
        match word:
            case TicketGranted():
                ticket.granted_s, ticket.position, ticket.eta_ms = now_s, 0, 0
                ticket.lease = None if word.place is None else LeasedSlots(*word.place)
            case TicketMoved():
                ticket.position, ticket.eta_ms = word.position, word.eta_ms
                ticket.deadline_s = self._wait_until_s[word.ticket]
            case TicketRefused():
                error = _REFUSALS.get(word.code, AtCapacity)
                ticket.error = error(word.message, retry_after_ms=word.retry_after_ms)
        ticket.on_change(ticket, now_s)
