"""The speech process's side of one worker: its tickets for admission and the slots leased to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from voxgate.pipeline.errors import EngineError, VoxgateError
from voxgate.pipeline.ipc.engine_messages import AbortGeneration, GenerationEnded, Message, SubmitGeneration
from voxgate.pipeline.ipc.records import later_epoch
from voxgate.pipeline.talker.slot_lease import SlotLease

from ..access.caller import Caller
from ..access.keys import KeyLimits
from ..session.admission import AdmissionQueue, Ticket
from .messages import Join, Leave, TicketGranted, TicketMoved, TicketRefused


class SlotLender(Protocol):
    """The voice model as the source of slot leases."""

    def lease(self) -> SlotLease:
        """Leases a slot. Raises AtCapacity, EngineError."""


class CallerRegistry:
    """Callers with utterances in any worker, by name, with the limits of their last request."""

    def __init__(self) -> None:
        self._known: dict[str, Caller] = {}

    def find(self, name: str, limit: int | None) -> Caller:
        """The caller of a name; `limit` bounds its active utterances."""
        if len(self._known) > 1024:
            self._known = {known: caller for known, caller in self._known.items() if not caller.unused}
        limits = KeyLimits(utterances=limit)
        caller = self._known.setdefault(name, Caller(name, limits))
        caller.set_limits(limits)
        return caller


class Broker:
    """Requests admission and leases slots for one worker. Synchronous; `send` sends a message to the worker."""

    def __init__(
        self, admission: AdmissionQueue, callers: CallerRegistry, lender: SlotLender, send: Callable[[Message], None]
    ) -> None:
        self._admission, self._callers, self._lender, self._send = admission, callers, lender, send
        self._tickets: dict[int, Ticket] = {}
        self._leases: dict[int, SlotLease] = {}
        self._open = True
        self._awaits_engine = False
        """Whether the engine was lost, and the worker has not attached to the next one."""
        self.last_epoch = 0
        """Last epoch of the worker's generations; 0 before the first."""

    def join(self, request: Join, now_s: float) -> None:
        """Requests admission of an utterance."""
        number = request.ticket
        caller = self._callers.find(request.caller, request.limit)
        try:
            ticket = self._admission.enqueue(
                caller, lambda ticket, _: self._notify(number, ticket), now_s, resumes=request.resumes
            )
        except VoxgateError as error:
            self._refuse(number, error)
            return
        self._tickets[number] = ticket
        self._notify(number, ticket)

    def leave(self, number: int, now_s: float) -> None:
        """Releases the ticket and its slot. Safe to call twice."""
        if (lease := self._leases.pop(number, None)) is not None:
            lease.release()
        if (ticket := self._tickets.pop(number, None)) is not None:
            self._admission.release(ticket, now_s)

    def on_worker_ended(self, now_s: float) -> None:
        """The worker has ended: aborts its utterances and releases their slots."""
        self._open = False
        self._end_leases(SlotLease.revoke)
        tickets, self._tickets = self._tickets, {}
        # Queued tickets first: slots released by granted ones belong to other workers.
        for ticket in sorted(tickets.values(), key=lambda ticket: ticket.granted):
            self._admission.release(ticket, now_s)

    def engine_lost(self) -> None:
        """The engine is lost: its leases end, because the next engine reuses the slot numbers; it grants new ones."""
        self._awaits_engine = True
        self._end_leases(SlotLease.release)

    def engine_attached(self) -> None:
        """The worker has attached to the engine: what it submits from now on is for that one."""
        self._awaits_engine = False

    def _end_leases(self, end: Callable[[SlotLease], None]) -> None:
        leases, self._leases = self._leases, {}
        for lease in leases.values():
            end(lease)
            # Of a generation, too, that claimed a prompt and was not reported.
            self.last_epoch = later_epoch(self.last_epoch, lease.talker.epoch)

    def submit(self, request: SubmitGeneration) -> None:
        """Starts a generation in a leased slot; in any other slot it ends at once.

        Ignores what was submitted to an engine that is lost: the worker has ended it, or will with the next message.
        """
        self.last_epoch = later_epoch(self.last_epoch, request.epoch)
        if self._awaits_engine:
            return
        if (lease := self._lease_of(request.slot)) is None:
            self._send(GenerationEnded(request.epoch, None))
        else:
            lease.talker.submit(
                request.epoch,
                request.prompt_len,
                lambda steps: self._send(GenerationEnded(request.epoch, steps)),
                claimed=request.claimed,
            )

    def abort(self, request: AbortGeneration) -> None:
        """Aborts a generation in a leased slot."""
        if (lease := self._lease_of(request.slot)) is not None:
            lease.talker.abort(request.epoch)

    def on_message(self, message: Join | Leave | SubmitGeneration | AbortGeneration, now_s: float) -> None:
        match message:
            case Join():
                self.join(message, now_s)
            case Leave():
                self.leave(message.ticket, now_s)
            case SubmitGeneration():
                self.submit(message)
            case AbortGeneration():
                self.abort(message)

    def _lease_of(self, slot: int) -> SlotLease | None:
        return next((lease for lease in self._leases.values() if lease.talker.slot == slot), None)

    def _notify(self, number: int, ticket: Ticket) -> None:
        if not self._open:
            return
        if ticket.error is not None:
            self._refuse(number, ticket.error)
            return
        if not ticket.granted:
            self._send(TicketMoved(number, ticket.position, ticket.eta_ms))
            return
        if number in self._leases:
            return
        try:
            lease = self._leases[number] = self._lender.lease()
        except EngineError:
            # The utterance handles the missing engine itself, as it does without workers.
            self._send(TicketGranted(number, None))
        except VoxgateError as error:
            self._refuse(number, error)
        else:
            self._send(TicketGranted(number, (lease.talker.slot, lease.codec, lease.talker.prompt_row)))

    def _refuse(self, number: int, error: VoxgateError) -> None:
        self._send(TicketRefused(number, error.code, error.message, error.retry_after_ms, error.reached))
