"""How the utterances of one session get talker slots, give them up, and go on in the next engine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from voxgate.pipeline.errors import EngineLost, EngineNotReady, VoxgateError
from voxgate.pipeline.interface import Speech

from ...access.caller import Caller
from ...messages.resumption import CheckpointMessage
from ...messages.server import ENGINE_RESTARTS, QueuedMessage, WarningMessage
from ..active_utterances import Termination
from ..admission import Admission, Ticket
from ..effects import EffectQueue, ReadSpeech, SuspendSpeech
from ..pacer import TIMER_SLACK_S
from ..utterance import ServerUtterance
from ..utterance_factory import UtteranceFactory
from .starvation import Starvation

MAX_CONTINUED = 3
"""Times an utterance goes on after a loss of the engine, so that one which ends every engine ends itself."""

log = logging.getLogger(__name__)


class UtteranceSlots:
    """Requests slots, takes them when they are granted, and gives them up for others. Synchronous; time is an argument.

    Calls `wake` when a ticket changed.
    """

    def __init__(
        self,
        session: str,
        caller: Caller,
        factory: UtteranceFactory,
        admission: Admission,
        effects: EffectQueue,
        termination: Termination,
        wake: Callable[[], None],
    ) -> None:
        self._session, self._caller, self._factory, self._admission = session, caller, factory, admission
        self._effects, self._termination, self._wake = effects, termination, wake
        self._starvation = Starvation(admission, factory.settings.queue_wait_ms / 1000)
        self._loss_timeout_s = factory.settings.engine_loss_timeout_s

    def enqueue(self, utterance: ServerUtterance, message_id: str | None, now_s: float) -> bool:
        """Requests a slot for an utterance that has something to say; returns False when a refusal ended it.

        `message_id`: of the client's message that made it ask.
        """
        try:
            ticket = self._admission.enqueue(
                self._caller,
                lambda ticket, now_s: self._on_ticket_change(utterance, ticket, now_s),
                now_s,
                resumes=utterance.speech is not None,
            )
        except VoxgateError as error:
            self._termination.fail(utterance, error, message_id)
        else:
            utterance.enqueue(ticket, now_s)
            if ticket.pending and utterance.speech is None:
                self._factory.synthesizer.expect_utterance()
                self._factory.prepare_speech(utterance)
            self._follow_ticket(utterance, ticket, now_s)
        return not utterance.ended

    def enqueue_again(self, utterance: ServerUtterance, message_id: str | None, now_s: float) -> None:
        """Requests a slot for an utterance that gave its own up, if it now needs one."""
        if utterance.needs_slot_again:
            self.enqueue(utterance, message_id, now_s)

    # From admission

    def _on_ticket_change(self, utterance: ServerUtterance, ticket: Ticket, now_s: float) -> None:
        if not (utterance.ended or utterance.speech_closed):
            self._follow_ticket(utterance, ticket, now_s)
            self._wake()

    def _follow_ticket(self, utterance: ServerUtterance, ticket: Ticket, now_s: float) -> None:
        """Fails, queues or admits the utterance, as its ticket says."""
        if ticket.error is not None:
            self._termination.fail(utterance, ticket.error)
        elif ticket.granted and utterance.speech is not None:
            self._resume(utterance, utterance.speech, ticket, now_s)
        elif ticket.granted:
            self._admit(utterance, ticket, now_s)
        elif ticket.position and utterance.speech is None:  # 0: not known yet
            position, eta_ms = ticket.position, ticket.eta_ms
            self._effects.send(QueuedMessage(utterance=utterance.name, position=position, eta_ms=eta_ms))

    def _admit(self, utterance: ServerUtterance, ticket: Ticket, now_s: float) -> None:
        self._factory.synthesizer.expect_utterance()
        try:
            speech = self._factory.speech(utterance, ticket)
            started = utterance.admit(speech)
        except VoxgateError as error:
            self._termination.fail(utterance, error)
        else:
            self._effects.send(started)
            # The head comes before words and audio, so that a client that has any of them can go on elsewhere.
            for part in utterance.trail.due(speech, now_s):
                self._effects.send(CheckpointMessage(utterance=utterance.name, part=part))
            self._effects.add(ReadSpeech(utterance, speech))
            # Behind all that the first sample waits for: a record takes 0.1 ms.
            log.info("utterance admitted", extra={"session": self._session, "utterance": utterance.id})

    def on_suspended(self, utterance: ServerUtterance, now_s: float, *, given_up: bool) -> None:
        """The slot of an utterance is free for others, or it keeps its own. Ignored when it has ended."""
        if utterance.ended or utterance.speech_closed or utterance.retraction.rewinding is not None:
            return
        if not given_up:
            utterance.resume(now_s)
            utterance.hold.slot_judged_s = now_s
        elif (ticket := utterance.on_suspended()) is not None:
            self._admission.release(ticket, now_s)
            self.enqueue_again(utterance, None, now_s)

    # The loss of the engine

    def _resume(self, utterance: ServerUtterance, speech: Speech, ticket: Ticket, now_s: float) -> None:
        """Goes on in the ticket's slot, of this engine or the next; waits for an engine without one."""
        if not utterance.awaits_slot:
            # The engine came back before its loss was noticed here: `update` follows.
            utterance.renewed = utterance.has_slot
            return
        self._go_on(utterance, speech, ticket, now_s)

    def _go_on(self, utterance: ServerUtterance, speech: Speech, ticket: Ticket, now_s: float) -> None:
        """Goes on in the ticket's slot, with another speech if text was taken back."""
        if (rewinding := utterance.retraction.rewinding) is not None and not rewinding.closed:
            rewinding.due = True
            return
        try:
            if not self._factory.synthesizer.state.speaks:
                raise EngineNotReady("the voice model is not ready")
            if rewinding is None:
                speech.resume(ticket.lease)
            else:
                self._reopen(utterance, ticket)
        except EngineNotReady:
            if utterance.lost_s is None:
                utterance.lose(now_s)
        except VoxgateError as error:
            self._termination.fail(utterance, error)
        else:
            utterance.resume(now_s)

    def _reopen(self, utterance: ServerUtterance, ticket: Ticket) -> None:
        speech = self._factory.speech(utterance, ticket)
        self._effects.add(ReadSpeech(utterance, speech))
        utterance.reopen(speech)

    def on_rewound(self, utterance: ServerUtterance, now_s: float) -> None:
        """The speech of which text was taken back is closed: goes on in its slot, or asks for another one."""
        if utterance.ended or utterance.retraction.rewinding is None:
            return
        rewinding = utterance.on_rewound()
        if (ticket := utterance.ticket) is None:
            self.enqueue(utterance, None, now_s)
        elif ticket.granted and utterance.speech is not None and (rewinding.due or utterance.lost_s is None):
            self._go_on(utterance, utterance.speech, ticket, now_s)

    def withdraw(self, utterance: ServerUtterance, now_s: float) -> None:
        """Leaves the queue: all that the utterance had to say was taken back."""
        if (ticket := utterance.withdraw()) is not None:
            self._admission.release(ticket, now_s)

    def _on_loss(self, utterance: ServerUtterance, speech: Speech, now_s: float) -> None:
        """Keeps the utterance for the next engine, until its time is over."""
        if utterance.lost_s is None and utterance.figures.continued == MAX_CONTINUED:
            self._termination.fail(utterance, EngineLost(f"the speech engine was lost {MAX_CONTINUED + 1} times"))
            return
        if utterance.lost_s is None and utterance.ticket is not None:
            utterance.lose(now_s)
            if self._loss_timeout_s:
                message = "the speech engine was lost and restarts; the utterance then goes on from here"
                self._effects.send(WarningMessage(code=ENGINE_RESTARTS, message=message, utterance=utterance.name))
                if utterance.renewed:
                    self._resume(utterance, speech, utterance.ticket, now_s)
        if now_s + TIMER_SLACK_S >= self._loss_deadline_s(utterance):
            within = f" and did not return within {self._loss_timeout_s:g} s" if self._loss_timeout_s else ""
            self._termination.fail(utterance, EngineLost(f"the speech engine was lost{within}"))

    def _loss_deadline_s(self, utterance: ServerUtterance) -> float:
        return math.inf if utterance.lost_s is None else utterance.lost_s + self._loss_timeout_s

    def update(self, utterance: ServerUtterance, now_s: float) -> None:
        """Has the utterance give its slot up if it has to, or wait for the next engine."""
        if utterance.speech is None or utterance.speech_closed:
            return
        if utterance.lost_s is not None or (utterance.speech.lost and utterance.retraction.rewinding is None):
            self._on_loss(utterance, utterance.speech, now_s)
        elif utterance.retraction.under_way:
            return
        elif self._starvation.gives_way(utterance, now_s):
            utterance.suspend()
            self._effects.add(SuspendSpeech(utterance, utterance.speech, anywhere=utterance.hold.held))

    def next_wake_s(self, utterance: ServerUtterance, now_s: float) -> float:
        """When `update` is to be called again; infinity for never."""
        if utterance.speech_closed:
            return math.inf
        if utterance.lost_s is not None:
            return self._loss_deadline_s(utterance)
        if utterance.retraction.rewinding is not None:
            return math.inf
        if utterance.speech is not None and utterance.speech.lost:
            return now_s
        return self._starvation.next_look_s(utterance, now_s)
