"""How the utterances of one session get talker slots and give them up."""

from __future__ import annotations

from collections.abc import Callable

from voxgate.pipeline.errors import VoxgateError

from ... import messages
from ...access.caller import Caller
from ..active_utterances import Termination
from ..admission import Admission, Ticket
from ..effects import EffectQueue, ReadSpeech, SuspendSpeech
from ..utterance import ServerUtterance
from ..utterance_factory import UtteranceFactory
from .starvation import Starvation


class UtteranceSlots:
    """Requests slots, takes them when they are granted, and gives them up for others. Synchronous; time is an argument.

    Calls `wake` when a ticket changed.
    """

    def __init__(
        self,
        caller: Caller,
        factory: UtteranceFactory,
        admission: Admission,
        effects: EffectQueue,
        termination: Termination,
        wake: Callable[[], None],
    ) -> None:
        self._caller, self._factory, self._admission = caller, factory, admission
        self._effects, self._termination, self._wake = effects, termination, wake
        self._starvation = Starvation(admission, factory.settings.queue_wait_ms / 1000)

    def enqueue(self, utterance: ServerUtterance, message_id: str | None, now_s: float) -> bool:
        """Requests a slot for an utterance that has something to say; returns False when a refusal ended it.

        `message_id`: of the client's message that made it ask.
        """
        try:
            ticket = self._admission.enqueue(
                self._caller,
                lambda ticket, _: self._on_ticket_change(utterance, ticket),
                now_s,
                resumes=utterance.speech is not None,
            )
        except VoxgateError as error:
            self._termination.fail(utterance, error, message_id)
        else:
            utterance.enqueue(ticket, now_s)
            self._follow_ticket(utterance, ticket)
        return not utterance.ended

    def enqueue_again(self, utterance: ServerUtterance, message_id: str | None, now_s: float) -> None:
        """Requests a slot for an utterance that gave its own up, if it now needs one."""
        if utterance.needs_slot_again:
            self.enqueue(utterance, message_id, now_s)

    # From admission

    def _on_ticket_change(self, utterance: ServerUtterance, ticket: Ticket) -> None:
        if not (utterance.ended or utterance.speech_closed):
            self._follow_ticket(utterance, ticket)
            self._wake()

    def _follow_ticket(self, utterance: ServerUtterance, ticket: Ticket) -> None:
        """Fails, queues or admits the utterance, as its ticket says."""
        if ticket.error is not None:
            self._termination.fail(utterance, ticket.error)
        elif ticket.granted:
            self._admit(utterance, ticket)
        elif ticket.position and utterance.speech is None:  # 0: not known yet
            position, eta_ms = ticket.position, ticket.eta_ms
            self._effects.send(messages.QueuedMessage(utterance=utterance.name, position=position, eta_ms=eta_ms))

    def _admit(self, utterance: ServerUtterance, ticket: Ticket) -> None:
        try:
            if utterance.speech is not None:
                utterance.speech.resume(ticket.lease)
                utterance.resume()
                return
            speech = self._factory.speech(utterance.request, ticket)
            started = utterance.admit(speech)
        except VoxgateError as error:
            self._termination.fail(utterance, error)
        else:
            self._effects.send(started)
            self._effects.add(ReadSpeech(utterance, speech))

    def on_suspended(self, utterance: ServerUtterance, now_s: float, *, given_up: bool) -> None:
        """The slot of an utterance is free for others, or it keeps its own. Ignored when it has ended."""
        if utterance.ended or utterance.speech_closed:
            return
        if not given_up:
            utterance.resume()
        elif (ticket := utterance.on_suspended()) is not None:
            self._admission.release(ticket, now_s)
            self.enqueue_again(utterance, None, now_s)

    def update(self, utterance: ServerUtterance, now_s: float) -> None:
        """Has the utterance give its slot up if it has to."""
        if utterance.speech is not None and self._starvation.gives_way(utterance, now_s):
            utterance.suspend()
            self._effects.add(SuspendSpeech(utterance, utterance.speech))

    def next_wake_s(self, utterance: ServerUtterance, now_s: float) -> float:
        """When `update` is to be called again; infinity for never."""
        return self._starvation.next_look_s(utterance, now_s)
