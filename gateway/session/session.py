"""One socket's conversation without the socket: payloads and pipeline events in, effects out, time given.

What the payloads mean is the protocol's; what happens to the utterances is decided here.

Whoever drives it calls `receive`, `on_audio`, `on_finished` and `on_failed` as things happen, takes effects with
`next_effect` until there are none, and calls that again at `next_wake_s` or when `wake` was called.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

from voxgate.codecs.format import FORMATS
from voxgate.pipeline.errors import BadMessage, EmptyText, EngineError, GenerationFailed, VoxgateError
from voxgate.pipeline.interface import SpeechChunk

from .. import messages
from ..access.usage import Caller
from ..errors import ClientGone, Draining, UtteranceEnded
from ..messages import CloseCode
from ..observability.events import INTERRUPTED, Observer
from .active_utterances import ActiveUtterances, Termination
from .admission import Admission, Ticket
from .effects import Effect, EffectQueue, ReadSpeech
from .lifecycle import IllegalEvent
from .pacer import TIMER_SLACK_S
from .protocol import Disconnect, ProtocolAction, SendPayload, WireProtocol
from .rate_policy import RatePolicy
from .timers import UtteranceTimers
from .utterance import ServerUtterance
from .utterance_factory import UtteranceFactory

log = logging.getLogger(__name__)


class ServerSession:
    """Synchronous; not thread-safe. `wake` is called when effects arise that its driver did not cause."""

    def __init__(
        self,
        name: str,
        caller: Caller,
        factory: UtteranceFactory,
        admission: Admission,
        protocol: WireProtocol,
        wake: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self.name = name
        self._observer = observer or Observer()
        self._caller = caller
        self._factory = factory
        self._admission = admission
        self._protocol = protocol
        self._wake = wake
        self._rate_policy = RatePolicy(factory.settings)
        self._utterances = ActiveUtterances(factory.settings.utterances_per_session)
        self._effects = EffectQueue(protocol, lambda code: self._observer.error_sent(protocol.name, code))
        self._termination = Termination(name, self._utterances, self._effects, self._observe)
        self._timers = UtteranceTimers(
            protocol, self._effects, self._termination, factory.settings.slow_consumer_timeout_ms / 1000
        )
        self._text_idle_timeout_s = factory.settings.text_idle_timeout_s
        self._next_number = 1
        self._idle_close_s: float | None = None
        """Draining: without an utterance under way, the socket closes at this time."""

    @property
    def protocol_name(self) -> str:
        """The name of what is spoken here."""
        return self._protocol.name

    @property
    def active(self) -> tuple[ServerUtterance, ...]:
        """Utterances under way, queued ones included."""
        return self._utterances.active

    def leads_s(self, now_s: float) -> list[float]:
        """For each utterance that plays, how far it was sent ahead of its listener, in seconds."""
        return [lead_s for utterance in self.active if (lead_s := utterance.lead_s(now_s)) is not None]

    @property
    def closing(self) -> bool:
        """The socket is to be closed; messages are no longer taken."""
        return self._effects.closed

    @property
    def backlog(self) -> int:
        """What was not dealt with yet, in messages; the driver stops reading the socket while there is much."""
        return len(self._effects)

    def open(self) -> None:
        """Greet the client."""
        self._effects.send(
            messages.SessionMessage(
                session=self.name,
                default_voice=self._factory.default_voice,
                formats=FORMATS,
                limits=self._factory.limits,
            )
        )

    # From the client

    def receive(self, payload: str | bytes, now_s: float) -> None:
        """Take one message. Never raises: what is wrong with it becomes an `error` message."""
        if self.closing:
            return
        if isinstance(payload, bytes):
            self._effects.send_error(BadMessage("audio goes one way; send JSON in text frames"), None)
            self._effects.close(CloseCode.NOT_ACCEPTABLE, "binary message")
            return
        self._tick(now_s)
        try:
            self._rate_policy.count("messages", now_s)
            steps = self._protocol.receive(payload, now_s)
        except VoxgateError as error:
            self._refuse(error, None, now_s)
        else:
            self._follow(steps, now_s)

    def _tick(self, now_s: float) -> None:
        if self._protocol.next_wake_s() <= now_s + TIMER_SLACK_S:
            self._follow(self._protocol.tick(now_s), now_s)

    def _follow(self, steps: Iterable[ProtocolAction], now_s: float) -> None:
        for step in steps:
            if self.closing:
                return
            if isinstance(step, SendPayload | Disconnect):
                self._effects.put(step)
            else:
                self._obey(step, now_s)

    def _obey(self, message: messages.ClientMessage, now_s: float) -> None:
        name = None if isinstance(message, messages.Ping) else message.utterance
        try:
            self._take(message, now_s)
        except IllegalEvent as illegal:
            why = f"utterance {name!r} is {illegal.state}: no {illegal.event} any more"
            self._effects.send_error(UtteranceEnded(why), name)
        except (EmptyText, EngineError) as error:
            self._fail(name, error)
        except VoxgateError as error:
            self._refuse(error, name, now_s)
        except Exception:
            # A defect of ours in one utterance is no reason to end the others, or the socket.
            log.exception("a message failed", extra={"session": self.name})
            self._fail(name, GenerationFailed("the message could not be dealt with"))

    def _fail(self, name: str | None, error: VoxgateError) -> None:
        """The error ends the utterance of that name; where none is under way, it is only told."""
        utterance = self._utterances.get(name) if name is not None else None
        if utterance is None or utterance.over:
            self._effects.send_error(error, name)
        else:
            self._termination.fail(utterance, error)

    def _take(self, message: messages.ClientMessage, now_s: float) -> None:
        match message:
            case messages.Text():
                self._add_text(self._utterances.find(message.utterance), message.text, now_s)
            case messages.Ack():
                # Acks cross with the end of the speech by nature: one that comes too late is no mistake.
                if (heard := self._utterances.get(message.utterance)) is not None:
                    heard.pacer.ack(message.played_samples, now_s)
            case messages.Start():
                self._start(message, now_s)
            case messages.Flush():
                self._utterances.find(message.utterance).flush(now_s)
            case messages.End():
                self._utterances.find(message.utterance).end(now_s)
            case messages.Interrupt():
                self._rate_policy.count("interrupts", now_s)
                utterance = self._utterances.find(message.utterance)
                reply = utterance.interrupt(message.played_ms, now_s)
                self._timers.busy_until_s = now_s
                self._termination.leave(utterance, INTERRUPTED)
                self._effects.send(reply)
            case messages.Ping():
                self._effects.send(messages.PongMessage(id=message.id))

    def _add_text(self, utterance: ServerUtterance, text: str, now_s: float) -> None:
        utterance.check_text(text)
        self._caller.charge_text(len(text), now_s)
        utterance.add_text(text, now_s)

    def _start(self, message: messages.Start, now_s: float) -> None:
        # First what only refuses the message: an error of another kind would end the utterance of that name.
        self._utterances.check_free(message.utterance)
        self._rate_policy.count("starts", now_s)
        if self._idle_close_s is not None:
            raise Draining("the gateway is shutting down")
        self._utterances.check_limit()
        utterance = self._factory.utterance(message, self._next_number)
        if self._protocol.plays_in_order:
            utterance.pacer.wait_until(self._timers.busy_until_s)
        ticket = self._admission.enqueue(self._caller, lambda ticket, _: self._moved(utterance, ticket), now_s)
        utterance.join(ticket, f"{self.name}.{utterance.number}", now_s)
        self._next_number += 1
        self._utterances.add(utterance)
        log.info("utterance started", extra=self._ids(utterance))
        self._place(utterance, ticket)

    def _place(self, utterance: ServerUtterance, ticket: Ticket) -> None:
        if ticket.error is not None:
            self._termination.fail(utterance, ticket.error)
            return
        if not ticket.granted:
            if not ticket.position:
                return  # it is not known yet
            position, eta_ms = ticket.position, ticket.eta_ms
            self._effects.send(messages.QueuedMessage(utterance=utterance.name, position=position, eta_ms=eta_ms))
            return
        try:
            utterance.speech = self._factory.speech(utterance.request, ticket)
            started = utterance.admit(utterance.speech)
        except VoxgateError as error:
            self._termination.fail(utterance, error)
        else:
            self._effects.send(started)
            self._effects.add(ReadSpeech(utterance))

    def _moved(self, utterance: ServerUtterance, ticket: Ticket) -> None:
        if not utterance.over:
            self._place(utterance, ticket)
            self._wake()

    # From the pipeline

    def on_audio(self, utterance: ServerUtterance, chunk: SpeechChunk) -> None:
        """A chunk of the utterance's speech is there. Ignored when the utterance is over."""
        if utterance.over:
            return
        try:
            utterance.on_audio(chunk)
        except Exception:
            log.exception("encoding failed", extra=self._ids(utterance))
            self._termination.fail(utterance, GenerationFailed("the audio could not be encoded"))
            return
        if utterance.words and chunk.words:
            self._effects.send(messages.WordsMessage.of(utterance.name, chunk.words))

    def on_finished(self, utterance: ServerUtterance) -> None:
        """The utterance's speech came to its end: its slot is free before the last packet leaves."""
        if not utterance.over:
            utterance.on_finished()
            self._termination.close_speech(utterance)

    def on_failed(self, utterance: ServerUtterance, error: VoxgateError) -> None:
        """The utterance's speech failed."""
        self._termination.fail(utterance, error)

    # From the clock, the network and the process

    def drain(self, deadline_ms: int, idle_close_s: float) -> None:
        """Take no new utterances; close when none is under way, but not before `idle_close_s`."""
        if self._idle_close_s is None and not self.closing:
            self._idle_close_s = idle_close_s
            self._effects.send(messages.GoingAwayMessage(deadline_ms=deadline_ms))
            self._wake()

    def abort(self) -> None:
        """The drain's deadline: give every utterance up and close."""
        self._termination.fail_all(Draining("the gateway is shutting down"))
        self._effects.close(CloseCode.RESTARTING, "shutting down")
        self._wake()

    def on_disconnect(self) -> tuple[ServerUtterance, ...]:
        """The socket is gone: gives every utterance up; returns those whose speech is to be closed."""
        self._effects.closed = True
        self._termination.fail_all(ClientGone("the socket is gone"))
        return self._effects.abandon()

    def blocked(self, now_s: float, since_s: float) -> None:
        """A write has waited for the client since `since_s`: warn first, close after the stall limit."""
        for utterance in self.active:
            self._timers.blocked(utterance, now_s, since_s)

    def on_probe_answered(self) -> None:
        """The client has read all that was sent before the last SendProbe."""
        self._timers.on_probe_answered()

    def next_effect(self, now_s: float) -> Effect | None:
        """What to do next, None when there is nothing now. One due packet per utterance in turn."""
        if not self._effects and not self.closing:
            self._tick(now_s)
            for utterance in self.active:
                if utterance.queued:
                    self._expire(utterance, now_s)
                elif now_s + TIMER_SLACK_S >= utterance.waits_for_text_until_s(self._text_idle_timeout_s):
                    self._complete(utterance, now_s)
                else:
                    self._timers.update(utterance, now_s)
            if self._idle_close_s is not None and not self.active and now_s >= self._idle_close_s:
                self._effects.close(CloseCode.RESTARTING, "shutting down")
        return self._effects.take()

    def next_wake_s(self, now_s: float) -> float:
        """When `next_effect` will have something without any event; infinity for never."""
        if self._effects:
            return now_s
        if self.closing:
            return math.inf
        times_s = [self._timers.next_wake_s(utterance, now_s) for utterance in self.active]
        times_s += [utterance.waits_for_text_until_s(self._text_idle_timeout_s) for utterance in self.active]
        if self._idle_close_s is not None and not times_s:
            times_s.append(self._idle_close_s)
        times_s.append(self._protocol.next_wake_s())
        return min(times_s)

    def _expire(self, utterance: ServerUtterance, now_s: float) -> None:
        assert utterance.ticket is not None
        if now_s >= utterance.ticket.deadline_s:
            self._termination.fail(utterance, self._admission.capacity_error("no talker slot became free in time"))

    def _complete(self, utterance: ServerUtterance, now_s: float) -> None:
        """Its client forgot to end it, or is gone without a word: others want the slot."""
        message = f"no text came for {self._text_idle_timeout_s:g} s: the utterance is ended"
        self._effects.send(
            messages.WarningMessage(code=messages.TEXT_WAITED_OUT, message=message, utterance=utterance.name)
        )
        self._obey(messages.End(type="end", utterance=utterance.name), now_s)

    # Small change

    def _observe(self, utterance: ServerUtterance, outcome: str) -> None:
        self._observer.utterance_ended(utterance.record(self.protocol_name, self._caller.key, outcome))

    def _ids(self, utterance: ServerUtterance) -> dict[str, str]:
        return {"session": self.name, "utterance": utterance.id}

    def _refuse(self, error: VoxgateError, name: str | None, now_s: float) -> None:
        self._effects.send_error(error, name)
        if reason := self._rate_policy.close_reason(error, now_s):
            self._effects.close(CloseCode.POLICY, reason)
