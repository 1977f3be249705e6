"""Admission in a worker: the speech process decides for all workers, and its answers arrive later."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from voxgate.pipeline.errors import AtCapacity, VoxgateError
from voxgate.pipeline.interface import LeasedSlots
from voxgate.pipeline.ipc.engine_messages import Message

from ..access.caller import Caller
from ..errors import KeyLimit, Limit
from ..session.admission import Ticket
from .messages import Join, Leave, Status, TicketGranted, TicketMoved, TicketRefused

FIRST_REPLY_S = 2.0
"""Minimum seconds that a ticket waits for its first answer, however short the wait in the queue is."""

_REFUSALS: dict[str, type[VoxgateError]] = {error.code: error for error in (AtCapacity, KeyLimit)}


class RemoteAdmission:
    """The `Admission` of a worker. Synchronous; `send` sends a message to the speech process.

    A ticket has no position before the first answer. It times out like a queued one, but not before `FIRST_REPLY_S`:
    with a queue wait of zero no ticket would ever be granted.
    """

    def __init__(self, wait_ms: int, send: Callable[[Message], None]) -> None:
        self._wait_s = wait_ms / 1000
        self._send = send
        self._numbers = itertools.count(1)
        self._open: dict[int, Ticket] = {}
        self._number_of: dict[Ticket, int] = {}
        self._wait_until_s: dict[int, float] = {}
        """End of the queue wait of each ticket."""
        self.active = self.queued = self.slots = 0
        self._retry_ms = 1000

    def update_status(self, status: Status) -> None:
        """Takes the counts of all workers."""
        self.active, self.queued, self.slots = status.active, status.queued, status.slots
        self._retry_ms = status.retry_ms

    def enqueue(
        self, caller: Caller, on_change: Callable[[Ticket, float], None], now_s: float, *, resumes: bool = False
    ) -> Ticket:
        ticket = Ticket(caller, now_s + max(self._wait_s, FIRST_REPLY_S), on_change)
        number = next(self._numbers)
        self._open[number] = ticket
        self._wait_until_s[number] = now_s + self._wait_s
        self._number_of[ticket] = number
        caller.utterances += 1
        self._send(Join(number, caller.name, caller.limits.utterances, resumes))
        return ticket

    def release(self, ticket: Ticket, now_s: float) -> None:  # noqa: ARG002 - the interface's signature
        ticket.forget_owner()
        if ticket.closed:
            return
        ticket.closed = True
        ticket.caller.utterances -= 1
        number = self._number_of.pop(ticket)
        del self._open[number], self._wait_until_s[number]
        self._send(Leave(number))

    def on_engine_lost(self) -> None:
        """The engine is lost, and with it every leased slot; those of the next engine follow (`TicketGranted`)."""
        for ticket in self._open.values():
            ticket.lease = None

    def renew(self, now_s: float) -> None:
        """This process is attached to the engine again: utterances that hold a slot go on in it."""
        for ticket in tuple(self._open.values()):
            if ticket.granted:
                ticket.on_change(ticket, now_s)

    def capacity_error(self, reason: str, reached: Limit) -> AtCapacity:
        return AtCapacity(reason, retry_after_ms=self._retry_ms, reached=reached)

    def on_message(self, message: TicketGranted | TicketMoved | TicketRefused, now_s: float) -> None:
        """Applies an answer to its ticket; ignores it if the ticket was released meanwhile."""
        if (ticket := self._open.get(message.ticket)) is None:
            return
        match message:
            case TicketGranted():
                ticket.granted_s, ticket.position, ticket.eta_ms = now_s, 0, 0
                ticket.lease = None if message.slots is None else LeasedSlots(*message.slots)
            case TicketMoved():
                ticket.position, ticket.eta_ms = message.position, message.eta_ms
                ticket.deadline_s = self._wait_until_s[message.ticket]
            case TicketRefused():
                error = _REFUSALS.get(message.code, AtCapacity)
                ticket.error = error(message.message, retry_after_ms=message.retry_after_ms, reached=message.reached)
        ticket.on_change(ticket, now_s)
