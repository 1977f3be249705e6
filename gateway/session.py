"""One socket's conversation without the socket: payloads and pipeline events in, effects out, time given.

What the payloads mean is the dialect's; what happens to the utterances is decided here.

Whoever drives it calls `receive`, `hear`, `spoke` and `broke` as things happen, takes effects with
`next_effect` until there are none, and calls that again at `next_wake_s` or when `wake` was called.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

from ..codecs.format import FORMATS
from ..pipeline.errors import BadMessage, EmptyText, EngineError, GenerationFailed, VoxgateError
from ..pipeline.speech import SpeechChunk
from . import messages
from .access.caller import Caller
from .admission import Gate, Ticket
from .conduct import Conduct
from .dialects.dialect import Dialect, HangUp, Say, Step
from .effects import CloseCode, Effect, Listen
from .endings import Endings
from .errors import ClientGone, Draining, UtteranceEnded
from .lifecycle import IllegalEvent
from .observer import INTERRUPTED, Observer
from .opening import Offer
from .outgoing import Outgoing
from .pacer import TIMER_SLACK_S
from .playout import Playout
from .roster import Roster
from .utterance import Utterance

log = logging.getLogger(__name__)


class Session:
    """Synchronous; not thread-safe. `wake` is called when effects arise that its driver did not cause."""

    def __init__(
        self,
        name: str,
        caller: Caller,
        offer: Offer,
        admission: Gate,
        dialect: Dialect,
        wake: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self.name = name
        self._observer = observer or Observer()
        self._caller = caller
        self._offer = offer
        self._admission = admission
        self._dialect = dialect
        self._wake = wake
        self._conduct = Conduct(offer.settings)
        self._roster = Roster(offer.settings.utterances_per_session)
        self._outgoing = Outgoing(dialect, lambda code: self._observer.error_sent(dialect.name, code))
        self._endings = Endings(name, self._roster, self._outgoing, self._observe)
        self._playout = Playout(dialect, self._outgoing, self._endings, offer.settings.stall_limit_ms / 1000)
        self._text_wait_s = offer.settings.text_wait_s
        self._next_number = 1
        self._idle_close_s: float | None = None
        """Draining: without an utterance under way, the socket closes at this time."""

    @property
    def dialect(self) -> str:
        """The name of what is spoken here."""
        return self._dialect.name

    @property
    def active(self) -> tuple[Utterance, ...]:
        """Utterances under way, queued ones included."""
        return self._roster.active

    def leads_s(self, now_s: float) -> list[float]:
        """For each utterance that plays, how far it was sent ahead of its listener, in seconds."""
        return [lead_s for utterance in self.active if (lead_s := utterance.lead_s(now_s)) is not None]

    @property
    def closing(self) -> bool:
        """The socket is to be closed; messages are no longer taken."""
        return self._outgoing.closed

    @property
    def backlog(self) -> int:
        """What was not dealt with yet, in messages; the driver stops reading the socket while there is much."""
        return len(self._outgoing)

    def open(self) -> None:
        """Greet the client."""
        self._outgoing.send(
            messages.SessionOpened(
                session=self.name,
                default_voice=self._offer.default_voice,
                formats=FORMATS,
                limits=self._offer.limits,
            )
        )

    # From the client

    def receive(self, payload: str | bytes, now_s: float) -> None:
        """Take one message. Never raises: what is wrong with it becomes an `error` message."""
        if self.closing:
            return
        if isinstance(payload, bytes):
            self._outgoing.tell(BadMessage("audio goes one way; send JSON in text frames"), None)
            self._outgoing.close(CloseCode.NOT_ACCEPTABLE, "binary message")
            return
        self._tick(now_s)
        try:
            self._conduct.count("messages", now_s)
            steps = self._dialect.receive(payload, now_s)
        except VoxgateError as error:
            self._refuse(error, None, now_s)
        else:
            self._follow(steps, now_s)

    def _tick(self, now_s: float) -> None:
        if self._dialect.next_wake_s() <= now_s + TIMER_SLACK_S:
            self._follow(self._dialect.tick(now_s), now_s)

    def _follow(self, steps: Iterable[Step], now_s: float) -> None:
        for step in steps:
            if self.closing:
                return
            if isinstance(step, Say | HangUp):
                self._outgoing.put(step)
            else:
                self._obey(step, now_s)

    def _obey(self, message: messages.ClientMessage, now_s: float) -> None:
        name = None if isinstance(message, messages.Ping) else message.utterance
        try:
            self._take(message, now_s)
        except IllegalEvent as illegal:
            why = f"utterance {name!r} is {illegal.state}: no {illegal.event} any more"
            self._outgoing.tell(UtteranceEnded(why), name)
        except (EmptyText, EngineError) as error:
            self._spoil(name, error)
        except VoxgateError as error:
            self._refuse(error, name, now_s)
        except Exception:
            # A defect of ours in one utterance is no reason to end the others, or the socket.
            log.exception("a message failed", extra={"session": self.name})
            self._spoil(name, GenerationFailed("the message could not be dealt with"))

    def _spoil(self, name: str | None, error: VoxgateError) -> None:
        """The error ends the utterance of that name; where none is under way, it is only told."""
        utterance = self._roster.get(name) if name is not None else None
        if utterance is None or utterance.over:
            self._outgoing.tell(error, name)
        else:
            self._endings.fail(utterance, error)

    def _take(self, message: messages.ClientMessage, now_s: float) -> None:
        match message:
            case messages.Text():
                self._add_text(self._roster.find(message.utterance), message.text, now_s)
            case messages.Ack():
                # Acks cross with the end of the speech by nature: one that comes too late is no mistake.
                if (heard := self._roster.get(message.utterance)) is not None:
                    heard.pacer.ack(message.played_samples, now_s)
            case messages.Start():
                self._start(message, now_s)
            case messages.Flush():
                self._roster.find(message.utterance).flush(now_s)
            case messages.End():
                self._roster.find(message.utterance).end(now_s)
            case messages.Interrupt():
                self._conduct.count("interrupts", now_s)
                utterance = self._roster.find(message.utterance)
                reply = utterance.interrupt(message.played_ms, now_s)
                self._playout.busy_until_s = now_s
                self._endings.leave(utterance, INTERRUPTED)
                self._outgoing.send(reply)
            case messages.Ping():
                self._outgoing.send(messages.Pong(id=message.id))

    def _add_text(self, utterance: Utterance, text: str, now_s: float) -> None:
        utterance.check_text(text)
        self._caller.spend_text(len(text), now_s)
        utterance.add_text(text, now_s)

    def _start(self, message: messages.Start, now_s: float) -> None:
        # First what only refuses the message: an error of another kind would end the utterance of that name.
        self._roster.check_free(message.utterance)
        self._conduct.count("starts", now_s)
        if self._idle_close_s is not None:
            raise Draining("the gateway is shutting down")
        self._roster.check_room()
        utterance = self._offer.utterance(message, self._next_number)
        if self._dialect.serial:
            utterance.pacer.wait_until(self._playout.busy_until_s)
        ticket = self._admission.join(self._caller, lambda ticket, _: self._moved(utterance, ticket), now_s)
        utterance.join(ticket, f"{self.name}.{utterance.number}", now_s)
        self._next_number += 1
        self._roster.add(utterance)
        log.info("utterance started", extra=self._ids(utterance))
        self._place(utterance, ticket)

    def _place(self, utterance: Utterance, ticket: Ticket) -> None:
        if ticket.refused is not None:
            self._endings.fail(utterance, ticket.refused)
            return
        if not ticket.granted:
            if not ticket.position:
                return  # it is not known yet
            position, eta_ms = ticket.position, ticket.eta_ms
            self._outgoing.send(messages.Queued(utterance=utterance.name, position=position, eta_ms=eta_ms))
            return
        try:
            utterance.speech = self._offer.speech(utterance.request, ticket)
            started = utterance.admit(utterance.speech)
        except VoxgateError as error:
            self._endings.fail(utterance, error)
        else:
            self._outgoing.send(started)
            self._outgoing.add(Listen(utterance))

    def _moved(self, utterance: Utterance, ticket: Ticket) -> None:
        if not utterance.over:
            self._place(utterance, ticket)
            self._wake()

    # From the pipeline

    def hear(self, utterance: Utterance, chunk: SpeechChunk) -> None:
        """A chunk of the utterance's speech is there. Ignored when the utterance is over."""
        if utterance.over:
            return
        try:
            utterance.hear(chunk)
        except Exception:
            log.exception("encoding failed", extra=self._ids(utterance))
            self._endings.fail(utterance, GenerationFailed("the audio could not be encoded"))
            return
        if utterance.words and chunk.words:
            self._outgoing.send(messages.Words.of(utterance.name, chunk.words))

    def spoke(self, utterance: Utterance) -> None:
        """The utterance's speech came to its end: its slot is free before the last packet leaves."""
        if not utterance.over:
            utterance.spoken()
            self._endings.retire(utterance)

    def broke(self, utterance: Utterance, error: VoxgateError) -> None:
        """The utterance's speech failed."""
        self._endings.fail(utterance, error)

    # From the clock, the network and the process

    def drain(self, deadline_ms: int, idle_close_s: float) -> None:
        """Take no new utterances; close when none is under way, but not before `idle_close_s`."""
        if self._idle_close_s is None and not self.closing:
            self._idle_close_s = idle_close_s
            self._outgoing.send(messages.GoingAway(deadline_ms=deadline_ms))
            self._wake()

    def end_now(self) -> None:
        """The drain's deadline: give every utterance up and close."""
        self._endings.fail_all(Draining("the gateway is shutting down"))
        self._outgoing.close(CloseCode.RESTARTING, "shutting down")
        self._wake()

    def lost(self) -> tuple[Utterance, ...]:
        """The socket is gone: gives every utterance up; returns those whose speech is to be closed."""
        self._outgoing.closed = True
        self._endings.fail_all(ClientGone("the socket is gone"))
        return self._outgoing.abandon()

    def blocked(self, now_s: float, since_s: float) -> None:
        """A write has waited for the client since `since_s`: warn first, close after the stall limit."""
        for utterance in self.active:
            self._playout.blocked(utterance, now_s, since_s)

    def has_read(self) -> None:
        """The client has read all that was sent before the last Probe."""
        self._playout.has_read()

    def next_effect(self, now_s: float) -> Effect | None:
        """What to do next, None when there is nothing now. One due packet per utterance in turn."""
        if not self._outgoing and not self.closing:
            self._tick(now_s)
            for utterance in self.active:
                if utterance.queued:
                    self._expire(utterance, now_s)
                elif now_s + TIMER_SLACK_S >= utterance.waits_for_text_until_s(self._text_wait_s):
                    self._complete(utterance, now_s)
                else:
                    self._playout.turn(utterance, now_s)
            if self._idle_close_s is not None and not self.active and now_s >= self._idle_close_s:
                self._outgoing.close(CloseCode.RESTARTING, "shutting down")
        return self._outgoing.take()

    def next_wake_s(self, now_s: float) -> float:
        """When `next_effect` will have something without any event; infinity for never."""
        if self._outgoing:
            return now_s
        if self.closing:
            return math.inf
        times_s = [self._playout.next_turn_s(utterance, now_s) for utterance in self.active]
        times_s += [utterance.waits_for_text_until_s(self._text_wait_s) for utterance in self.active]
        if self._idle_close_s is not None and not times_s:
            times_s.append(self._idle_close_s)
        times_s.append(self._dialect.next_wake_s())
        return min(times_s)

    def _expire(self, utterance: Utterance, now_s: float) -> None:
        assert utterance.ticket is not None
        if now_s >= utterance.ticket.deadline_s:
            self._endings.fail(utterance, self._admission.refusal("no talker slot became free in time"))

    def _complete(self, utterance: Utterance, now_s: float) -> None:
        """Its client forgot to end it, or is gone without a word: others want the slot."""
        message = f"no text came for {self._text_wait_s:g} s: the utterance is ended"
        self._outgoing.send(messages.Warned(code=messages.TEXT_WAITED_OUT, message=message, utterance=utterance.name))
        self._obey(messages.End(type="end", utterance=utterance.name), now_s)

    # Small change

    def _observe(self, utterance: Utterance, outcome: str) -> None:
        self._observer.utterance_over(utterance.record(self.dialect, self._caller.key, outcome))

    def _ids(self, utterance: Utterance) -> dict[str, str]:
        return {"session": self.name, "utterance": utterance.id}

    def _refuse(self, error: VoxgateError, name: str | None, now_s: float) -> None:
        self._outgoing.tell(error, name)
        if reason := self._conduct.verdict(error, now_s):
            self._outgoing.close(CloseCode.POLICY, reason)
