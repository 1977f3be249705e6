"""The speech process's account of one worker: who waits or speaks there, and the slots lent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from voxgate.pipeline.errors import EngineError, VoxgateError
from voxgate.pipeline.ipc.engine_messages import AbortGeneration, GenerationEnded, Message, SubmitGeneration
from voxgate.pipeline.ipc.records import later_epoch
from voxgate.pipeline.talker.slot_lease import SlotLease

from ..access.keys import KeyLimits
from ..access.usage import Caller
from ..session.admission import AdmissionQueue, Ticket
from .messages import Join, Leave, TicketGranted, TicketMoved, TicketRefused


class SlotLender(Protocol):
    """The voice model as it lends slots."""

    def lease(self) -> SlotLease:
        """Raises AtCapacity, EngineError."""


class CallerRegistry:
    """Those who have utterances anywhere, by name, with the limits that came with the last of them."""

    def __init__(self) -> None:
        self._known: dict[str, Caller] = {}

    def find(self, name: str, limit: int | None) -> Caller:
        if len(self._known) > 1024:
            self._known = {known: caller for known, caller in self._known.items() if not caller.unused}
        limits = KeyLimits(utterances=limit)
        caller = self._known.setdefault(name, Caller(name, limits))
        caller.set_limits(limits)
        return caller


class Broker:
    """Synchronous; time comes in as an argument. `send` tells the worker."""

    def __init__(
        self, admission: AdmissionQueue, callers: CallerRegistry, lender: SlotLender, send: Callable[[Message], None]
    ) -> None:
        self._admission, self._callers, self._lender, self._send = admission, callers, lender, send
        self._tickets: dict[int, Ticket] = {}
        self._loans: dict[int, SlotLease] = {}
        self._open = True
        self.last_epoch = 0
        """Of its generations; 0 while there was none."""

    def join(self, asked: Join, now_s: float) -> None:
        number = asked.ticket
        caller = self._callers.find(asked.caller, asked.limit)
        try:
            ticket = self._admission.enqueue(caller, lambda ticket, _: self._tell(number, ticket), now_s)
        except VoxgateError as error:
            self._refuse(number, error)
            return
        self._tickets[number] = ticket
        self._tell(number, ticket)

    def leave(self, number: int, now_s: float) -> None:
        """Give everything back that the ticket stands for. Safe to call twice."""
        if (loan := self._loans.pop(number, None)) is not None:
            loan.release()
        if (ticket := self._tickets.pop(number, None)) is not None:
            self._admission.release(ticket, now_s)

    def gone(self, now_s: float) -> None:
        """The worker is no more: its utterances are cut, and their places are given to others."""
        self._open = False
        loans, self._loans = self._loans, {}
        for loan in loans.values():
            loan.revoke()
        tickets, self._tickets = self._tickets, {}
        # First those that wait: what the others leave is for other workers'.
        for ticket in sorted(tickets.values(), key=lambda ticket: ticket.granted):
            self._admission.release(ticket, now_s)

    def engine_lost(self) -> None:
        """The slots that were lent are no more; another engine lends others by the same numbers."""
        loans, self._loans = self._loans, {}
        for loan in loans.values():
            loan.release()

    def submit(self, asked: SubmitGeneration) -> None:
        """Run a generation in a slot that the worker was lent; of any other it is over at once."""
        self.last_epoch = later_epoch(self.last_epoch, asked.epoch)
        if (loan := self._loan_of(asked.slot)) is None:
            self._send(GenerationEnded(asked.epoch, None))
        else:
            loan.talker.submit(
                asked.epoch, asked.prompt_len, lambda steps: self._send(GenerationEnded(asked.epoch, steps))
            )

    def stop(self, asked: AbortGeneration) -> None:
        if (loan := self._loan_of(asked.slot)) is not None:
            loan.talker.abort(asked.epoch)

    def take(self, message: Join | Leave | SubmitGeneration | AbortGeneration, now_s: float) -> None:
        match message:
            case Join():
                self.join(message, now_s)
            case Leave():
                self.leave(message.ticket, now_s)
            case SubmitGeneration():
                self.submit(message)
            case AbortGeneration():
                self.stop(message)

    def _loan_of(self, slot: int) -> SlotLease | None:
        return next((loan for loan in self._loans.values() if loan.talker.slot == slot), None)

    def _tell(self, number: int, ticket: Ticket) -> None:
        if not self._open:
            return
        if not ticket.granted:
            self._send(TicketMoved(number, ticket.position, ticket.eta_ms))
            return
        try:
            loan = self._loans[number] = self._lender.lease()
        except EngineError:
            # The utterance finds out itself that nobody speaks, and says so as it does without workers.
            self._send(TicketGranted(number, None))
        except VoxgateError as error:
            self._refuse(number, error)
        else:
            self._send(TicketGranted(number, (loan.talker.slot, loan.codec)))

    def _refuse(self, number: int, error: VoxgateError) -> None:
        self._send(TicketRefused(number, error.code, error.message, error.retry_after_ms))
