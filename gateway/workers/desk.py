"""The speech process's account of one worker: who waits or speaks there, and the slots lent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...pipeline.errors import EngineError, VoxgateError
from ...pipeline.shared.loan import Loan
from ...pipeline.shared.messages import Message, Over, Stop, Submit
from ...pipeline.talker.frames import later_epoch
from ..access.caller import Caller
from ..access.keys import KeyLimits
from ..admission import Admission, Ticket
from .messages import Granted, Join, Leave, Moved, Refused


class Lender(Protocol):
    """The voice model as it lends slots."""

    def lend(self) -> Loan:
        """Raises AtCapacity, EngineError."""


class Callers:
    """Those who have utterances anywhere, by name, with the limits that came with the last of them."""

    def __init__(self) -> None:
        self._known: dict[str, Caller] = {}

    def find(self, name: str, limit: int | None) -> Caller:
        if len(self._known) > 1024:
            self._known = {known: caller for known, caller in self._known.items() if not caller.idle}
        limits = KeyLimits(utterances=limit)
        caller = self._known.setdefault(name, Caller(name, limits))
        caller.change(limits)
        return caller


class Desk:
    """Synchronous; time comes in as an argument. `send` tells the worker."""

    def __init__(self, admission: Admission, callers: Callers, lender: Lender, send: Callable[[Message], None]) -> None:
        self._admission, self._callers, self._lender, self._send = admission, callers, lender, send
        self._tickets: dict[int, Ticket] = {}
        self._loans: dict[int, Loan] = {}
        self._open = True
        self.last_epoch = 0
        """Of its generations; 0 while there was none."""

    def join(self, asked: Join, now_s: float) -> None:
        number = asked.ticket
        caller = self._callers.find(asked.caller, asked.limit)
        try:
            ticket = self._admission.join(caller, lambda ticket, _: self._tell(number, ticket), now_s)
        except VoxgateError as error:
            self._refuse(number, error)
            return
        self._tickets[number] = ticket
        self._tell(number, ticket)

    def leave(self, number: int, now_s: float) -> None:
        """Give everything back that the ticket stands for. Safe to call twice."""
        if (loan := self._loans.pop(number, None)) is not None:
            loan.give_back()
        if (ticket := self._tickets.pop(number, None)) is not None:
            self._admission.leave(ticket, now_s)

    def gone(self, now_s: float) -> None:
        """The worker is no more: its utterances are cut, and their places are given to others."""
        self._open = False
        loans, self._loans = self._loans, {}
        for loan in loans.values():
            loan.call_in()
        tickets, self._tickets = self._tickets, {}
        # First those that wait: what the others leave is for other workers'.
        for ticket in sorted(tickets.values(), key=lambda ticket: ticket.granted):
            self._admission.leave(ticket, now_s)

    def engine_lost(self) -> None:
        """The slots that were lent are no more; another engine lends others by the same numbers."""
        loans, self._loans = self._loans, {}
        for loan in loans.values():
            loan.give_back()

    def submit(self, asked: Submit) -> None:
        """Run a generation in a slot that the worker was lent; of any other it is over at once."""
        self.last_epoch = later_epoch(self.last_epoch, asked.epoch)
        if (loan := self._loan_of(asked.slot)) is None:
            self._send(Over(asked.epoch, None))
        else:
            loan.seat.submit(asked.epoch, asked.prompt_len, lambda steps: self._send(Over(asked.epoch, steps)))

    def stop(self, asked: Stop) -> None:
        if (loan := self._loan_of(asked.slot)) is not None:
            loan.seat.stop(asked.epoch)

    def take(self, message: Join | Leave | Submit | Stop, now_s: float) -> None:
        match message:
            case Join():
                self.join(message, now_s)
            case Leave():
                self.leave(message.ticket, now_s)
            case Submit():
                self.submit(message)
            case Stop():
                self.stop(message)

    def _loan_of(self, slot: int) -> Loan | None:
        return next((loan for loan in self._loans.values() if loan.seat.slot == slot), None)

    def _tell(self, number: int, ticket: Ticket) -> None:
        if not self._open:
            return
        if not ticket.granted:
            self._send(Moved(number, ticket.position, ticket.eta_ms))
            return
        try:
            loan = self._loans[number] = self._lender.lend()
        except EngineError:
            # The utterance finds out itself that nobody speaks, and says so as it does without workers.
            self._send(Granted(number, None))
        except VoxgateError as error:
            self._refuse(number, error)
        else:
            self._send(Granted(number, (loan.seat.slot, loan.codec)))

    def _refuse(self, number: int, error: VoxgateError) -> None:
        self._send(Refused(number, error.code, error.message, error.retry_after_ms))
