"""The session of one socket: messages and pipeline events in, effects out. It knows neither the network nor the clock.

The wire protocol translates payloads; the session decides what happens to the utterances. Its driver
(`transport.connection`)

- calls `receive`, `on_dictionaries`, `on_audio`, `on_finished`, `on_failed`, `on_write_blocked`, `on_probe_answered`
  and `on_disconnect` when these things happen,
- calls `answer_interrupts` after `receive` until it returns False, and passes no message while the session `defers`,
- takes effects with `next_effect` until it returns None, and performs them in order,
- repeats that at `next_wake_s`, and whenever the session calls `wake`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from voxgate.codecs.format import FORMATS
from voxgate.pipeline.errors import BadMessage, GenerationFailed, VoxgateError
from voxgate.pipeline.interface import SpeechChunk
from voxgate.pipeline.text.lexicon.lexicon import Lexicon

from ..access.caller import Caller
from ..access.rate_policy import RatePolicy
from ..errors import ClientGone, UtteranceEnded
from ..messages import client, connection, server
from ..messages.connection import CloseCode
from ..messages.parsing import MessageReference
from ..messages.resumption import CheckpointParts
from ..observability.events import Observer
from .active_utterances import ActiveUtterances, Termination, make_reporters
from .admission import Admission
from .deadlines import UtteranceDeadlines
from .effects import Effect, EffectQueue, LoadDictionaries
from .ending import SHUTDOWN, Ending
from .interruption.interruptions import Interruptions
from .pacer import TIMER_SLACK_S
from .protocol import Disconnect, ProtocolAction, SendPayload, WireProtocol
from .refusals import Refusals
from .retraction.retractions import Retractions
from .slots.utterance_slots import UtteranceSlots
from .starts import UtteranceStarts
from .timers import UtteranceTimers
from .utterance import ServerUtterance
from .utterance_factory import UtteranceFactory

log = logging.getLogger(__name__)


class ServerSession:
    """The state of one socket. Synchronous; not thread-safe. Times are those of the event loop's clock.

    Calls `wake` when effects arise from elsewhere, such as a slot that became free.
    """

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
        self._caller = caller
        self._factory = factory
        self._protocol = protocol
        self._wake = wake
        settings = factory.settings
        self._rate_policy = rate_policy = RatePolicy(settings)
        self._utterances = utterances = ActiveUtterances(settings.utterances_per_session)
        on_error, on_ended = make_reporters(observer or Observer(), protocol.name, caller.key)
        self._effects = effects = EffectQueue(protocol, on_error)
        self._termination = termination = Termination(name, utterances, effects, on_ended)
        self._timers = timers = UtteranceTimers(
            protocol, effects, termination, settings.slow_consumer_timeout_ms / 1000
        )
        self._slots = slots = UtteranceSlots(name, caller, factory, admission, effects, termination, wake)
        self._retractions = Retractions(effects, slots, termination)
        self._interruptions = Interruptions(
            name, protocol, utterances, effects, termination, slots, timers, settings.hold_max_ms
        )
        self._deadlines = UtteranceDeadlines(settings, admission, effects, termination)
        self._refusals = Refusals(name, rate_policy, utterances, effects, termination)
        self._starts = UtteranceStarts(name, caller, factory, protocol, rate_policy, utterances, effects, timers)
        self._deferred: deque[ProtocolAction] = deque()
        """A `start` whose dictionaries are being loaded, and what follows it."""
        self._idle_close_s = math.inf
        """While draining: when the socket closes if no utterance is active."""

    @property
    def protocol_name(self) -> str:
        """Name of the wire protocol."""
        return self._protocol.name

    @property
    def active(self) -> tuple[ServerUtterance, ...]:
        """Active utterances, queued ones included."""
        return self._utterances.active

    @property
    def speaks(self) -> bool:
        """Whether an utterance is about to begin, waits for a talker slot, has one, or has audio that was not sent."""
        return self._about_to_act or any(utterance.ticket is not None for utterance in self._utterances.active)

    @property
    def _about_to_act(self) -> bool:
        """Whether a `start` waits for its dictionaries, or the protocol has something to do at once, as a POST has."""
        return bool(self._deferred) or self._protocol.next_wake_s() == -math.inf

    @property
    def holds_slot(self) -> bool:
        """Whether an utterance has a talker slot."""
        return any(utterance.ticket is not None and utterance.ticket.granted for utterance in self.active)

    @property
    def queued(self) -> int:
        """Utterances that wait for a talker slot."""
        return sum(utterance.queued for utterance in self.active)

    @property
    def gives_up_write(self) -> bool:
        """Whether a blocked write is not to be waited for: the socket is to be closed, or its connection given up."""
        return self.closing or self._effects.loses_socket

    @property
    def closing(self) -> bool:
        """Whether the socket is to be closed; further messages are ignored."""
        return self._effects.closed

    @property
    def defers(self) -> bool:
        """Whether a `start` waits for its dictionaries; the driver passes no message until it has passed them."""
        return bool(self._deferred)

    @property
    def backlog(self) -> int:
        """Effects not taken yet; the driver stops reading the socket while there are many."""
        return len(self._effects)

    def leads_s(self, now_s: float) -> list[float]:
        """Returns, for each utterance that plays, the seconds of audio sent and not played yet."""
        return [lead_s for utterance in self.active if (lead_s := utterance.lead_s(now_s)) is not None]

    def open(self, now_s: float) -> None:
        """Sends the first message."""
        self._effects.send(
            connection.SessionMessage(
                session=self.name,
                default_voice=self._factory.default_voice,
                formats=FORMATS,
                limits=self._factory.limits,
                quota=self._caller.quota(now_s),
            )
        )

    # From the client

    def receive(self, payload: str | bytes, now_s: float) -> None:
        """Handles one message. Never raises: an error becomes an `error` message."""
        if self.closing:
            return
        if isinstance(payload, bytes):
            self._effects.send_error(BadMessage("messages must be JSON in text frames, got a binary frame"), None)
            self._effects.close(CloseCode.NOT_ACCEPTABLE, "binary message")
            return
        self._tick_protocol(now_s)
        self._run(
            self._refusals.translate(
                partial(self._receive, payload, now_s), partial(self._protocol.refers_to, payload), now_s
            ),
            now_s,
        )

    def _receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        self._rate_policy.take("messages", now_s)
        return self._protocol.receive(payload, now_s)

    def _tick_protocol(self, now_s: float) -> None:
        if not self._deferred and (due_s := self._protocol.next_wake_s()) <= now_s + TIMER_SLACK_S:
            tick = partial(self._protocol.tick, max(now_s, due_s))
            self._run(self._refusals.translate(tick, MessageReference, now_s), now_s)

    def _run(self, actions: Iterable[ProtocolAction], now_s: float) -> None:
        for action in actions:
            if self.closing:
                return
            if self._deferred:
                self._deferred.append(action)
            elif isinstance(action, SendPayload | Disconnect):
                self._effects.add_output(action)
            else:
                self._execute(action, now_s)

    def _execute(self, message: client.ClientMessage, now_s: float) -> None:
        self._refusals.guard(message, partial(self._apply, message, now_s), now_s)

    def _apply(self, message: client.ClientMessage, now_s: float) -> None:
        match message:
            case client.Text():
                self._add_text(self._utterances.find(message.utterance), message, now_s)
            case client.Ack():
                # A late ack is no error: it crossed with the last audio of the utterance, or with its hold.
                if (found := self._utterances.get(message.utterance)) is not None and not found.hold.held:
                    found.pacer.ack(message.played_samples, now_s)
            case client.Start():
                self._start(message, now_s)
            case client.Flush():
                utterance = self._utterances.find(message.utterance)
                if not utterance.text_needs_slot or self._slots.enqueue(utterance, message.id, now_s):
                    utterance.flush(now_s)
                    self._slots.enqueue_again(utterance, message.id, now_s)
            case client.End():
                utterance = self._utterances.find(message.utterance)
                if not utterance.text_needs_slot or self._slots.enqueue(utterance, message.id, now_s):
                    utterance.end(now_s)
                    self._slots.enqueue_again(utterance, message.id, now_s)
            case client.Interrupt():
                self._rate_policy.take("interrupts", now_s)
                self._interruptions.interrupt(message, now_s)
            case client.Continue():
                self._rate_policy.take("interrupts", now_s)
                self._interruptions.end_hold(message, now_s)
            case client.Retract():
                self._rate_policy.take("starts", now_s)
                utterance = self._utterances.find(message.utterance)
                self._retractions.begin(utterance, message.characters, message.id, now_s)
            case CheckpointParts():
                self._utterances.find(message.utterance).trail.present(message.parts)
            case client.Ping():
                self._effects.send(connection.PongMessage(id=message.id))
            case client.AskLimits():
                limits, quota = self._factory.limits, self._caller.quota(now_s)
                self._effects.send(connection.LimitsMessage(id=message.id, limits=limits, quota=quota))

    def _add_text(self, utterance: ServerUtterance, message: client.Text, now_s: float) -> None:
        utterance.check_text(message.text)
        self._caller.charge_text(utterance.trail.uncharged(len(message.text)), now_s)
        if utterance.add_text(message.text, now_s):
            self._slots.enqueue(utterance, message.id, now_s)

    def answer_interrupts(self) -> bool:
        """Does a part of the work of finding the spoken text, and sends the answers that are complete.

        Returns whether more is left: then the driver calls it again in the next turn of the event loop, before it
        passes the next message.
        """
        return self._interruptions.answer()

    def _start(self, message: client.Start, now_s: float) -> None:
        if (dictionaries := self._starts.check(message, now_s)) is None:
            self._deferred.append(message)
            load = partial(self._factory.load_dictionaries, message, self._caller.name)
            self._effects.add(LoadDictionaries(load))
        else:
            self._starts.begin(message, dictionaries, now_s)

    def on_dictionaries(self, loaded: tuple[Lexicon, ...] | VoxgateError, now_s: float) -> None:
        """The dictionaries of the held `start` are loaded, or could not be: applies it and what follows it."""
        held, self._deferred = self._deferred, deque()
        message = held.popleft()
        assert isinstance(message, client.Start)

        def begin() -> None:
            if isinstance(loaded, VoxgateError):
                raise loaded
            self._starts.begin(message, loaded, now_s)

        if not self.closing:
            self._refusals.guard(message, begin, now_s)
            self._run(held, now_s)

    # From the pipeline

    def on_audio(self, utterance: ServerUtterance, chunk: SpeechChunk) -> None:
        """Encodes a chunk of the utterance's speech. Ignored when the utterance has ended, or that speech has."""
        if utterance.ended or utterance.retraction.rewinding is not None:
            return
        try:
            utterance.on_audio(chunk)
        except Exception:
            log.exception("encoding failed", extra={"session": self.name, "utterance": utterance.id})
            self._termination.fail(utterance, GenerationFailed("the audio could not be encoded"))
            return
        for notice in chunk.notices:
            self._effects.send(
                server.WarningMessage(code=server.MARKUP_IGNORED, message=notice, utterance=utterance.name)
            )
        if utterance.words and (words := utterance.told.words_message(chunk.words, utterance.text.offsets)) is not None:
            self._effects.send(words)
        if (visemes := utterance.told.visemes_message(chunk.visemes)) is not None:
            self._effects.send(visemes)

    def on_finished(self, utterance: ServerUtterance) -> None:
        """The speech is complete: releases its slot before the last packet leaves."""
        if not utterance.ended and utterance.retraction.rewinding is None:
            if (late := utterance.on_finished()) is not None:
                error = UtteranceEnded(f"the audio of utterance {utterance.name!r} has been sent to its end")
                self._effects.send_error(error, utterance.name, message_id=late.message_id)
            if utterance.retraction.pending is None:
                self._termination.close_speech(utterance)

    def on_suspended(self, utterance: ServerUtterance, now_s: float, *, given_up: bool) -> None:
        """The slot of an utterance is free for others, or it keeps its own. Ignored when it has ended."""
        self._slots.on_suspended(utterance, now_s, given_up=given_up)

    def on_rewound(self, utterance: ServerUtterance, now_s: float) -> None:
        """The speech of which text was taken back is closed."""
        self._slots.on_rewound(utterance, now_s)

    def on_failed(self, utterance: ServerUtterance, error: VoxgateError) -> None:
        """The speech failed: ends the utterance with `error`."""
        if utterance.retraction.rewinding is None:
            self._termination.fail(utterance, error)

    # From the network and the process

    def on_write_blocked(self, now_s: float, since_s: float) -> None:
        """A write has been blocked since `since_s`: warns the client, then closes its socket.

        Without an active utterance there is nothing to warn of, and while draining nothing to wait for.
        """
        if not self.active:
            self._close_idle(now_s)
            self._timers.on_idle_write_blocked(now_s, since_s)
        for utterance in self.active:
            if not self._expire(utterance, now_s):
                self._timers.on_write_blocked(utterance, now_s, since_s)

    def on_probe_answered(self) -> None:
        """The client has read everything sent before the last SendProbe."""
        self._timers.on_probe_answered()

    def on_detached(self) -> None:
        """The connection is lost, and the client may resume the session on another one."""
        self._timers.on_detached()

    def on_attached(self, now_s: float) -> None:
        """The client resumed the session; what it had not received was sent again."""
        self._timers.on_attached(now_s)
        self._wake()

    def on_disconnect(self) -> tuple[ServerUtterance, ...]:
        """The socket is gone: ends every utterance; returns those whose speech is to be closed."""
        self._effects.closed = True
        self._termination.fail_all(ClientGone("the client closed the socket"))
        return self._effects.clear()

    def drain(self, deadline_ms: int, idle_close_s: float, ending: Ending = SHUTDOWN) -> None:
        """Refuses new utterances; closes the socket when none is active, but not before `idle_close_s`."""
        if self._starts.ending is None and not self.closing:
            self._idle_close_s, self._starts.ending = idle_close_s, ending
            moves = (self._protocol.checkpoints and ending.moves) or None
            for utterance in self.active:
                self._timers.send_checkpoint(utterance, math.inf)
            self._effects.send(connection.GoingAwayMessage(deadline_ms=deadline_ms, restore_elsewhere=moves))
            self._wake()

    def abort(self, ending: Ending = SHUTDOWN) -> None:
        """Ends every utterance and closes the socket."""
        self._termination.fail_all(ending.error())
        if self._about_to_act:
            self._effects.send_error(ending.error(), None)
        self._effects.close(ending.code, ending.reason)
        self._wake()

    # As time passes

    def next_effect(self, now_s: float) -> Effect | None:
        """Returns what to do next, None when nothing is due. Each utterance sends one due packet in turn."""
        if self._effects or self.closing:
            return self._effects.take()
        if not self._timers.continue_burst(self._utterances.active, now_s):
            self._tick_protocol(now_s)
            for utterance in self._utterances.active:
                self._update(utterance, now_s)
            self._close_idle(now_s)
        return self._effects.take()

    def _update(self, utterance: ServerUtterance, now_s: float) -> None:
        self._retractions.update(utterance, now_s)
        if self._deadlines.end_queued(utterance, now_s) or self._expire(utterance, now_s):
            return
        if utterance.queued and utterance.speech is None:
            return
        if self._deadlines.ends_text(utterance, now_s):
            self._execute(client.End(type="end", utterance=utterance.name), now_s)
        else:
            self._slots.update(utterance, now_s)
            self._timers.update(utterance, now_s)

    def _expire(self, utterance: ServerUtterance, now_s: float) -> bool:
        """Ends an utterance that was held or has lasted for too long; returns whether it did."""
        return self._interruptions.let_go(utterance, now_s) or self._deadlines.end_overlong(utterance, now_s)

    def _close_idle(self, now_s: float) -> None:
        """While draining, closes the socket once no utterance is active."""
        ending = self._starts.ending
        if (
            ending is not None
            and not self.active
            and not self._deferred
            and now_s + TIMER_SLACK_S >= self._idle_close_s
        ):
            self._effects.close(ending.code, ending.reason)

    def next_wake_s(self, now_s: float) -> float:
        """When `next_effect` has something to return without an event; infinity for never."""
        if self._effects:
            return now_s
        if self.closing:
            return math.inf
        utterances = self._utterances.active
        if self._timers.in_burst(utterances):
            return now_s
        wake_s = math.inf if utterances or self._deferred else self._idle_close_s
        if not self._deferred:
            wake_s = min(wake_s, self._protocol.next_wake_s())
        for utterance in utterances:
            wake_s = min(
                wake_s,
                self._timers.next_wake_s(utterance, now_s),
                self._deadlines.next_wake_s(utterance),
                self._slots.next_wake_s(utterance, now_s),
                self._retractions.next_wake_s(utterance, now_s),
            )
        return wake_s
