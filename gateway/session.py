"""One socket's conversation, without the socket: messages and pipeline events in, effects out, time as an argument.

Whoever drives it calls `receive`, `hear`, `spoke` and `broke` as things happen, takes effects with `next_effect` until there
are none, and calls that again at `next_wake_s` or when `wake` was called.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ..pipeline.errors import (
    BadMessage,
    EmptyText,
    EngineError,
    EngineNotReady,
    GenerationFailed,
    UnknownLanguage,
    UnknownVoice,
    UnsupportedFormat,
    UnsupportedOption,
    VoxgateError,
)
from ..pipeline.speech import EngineState, SpeechChunk, SpeechRequest, Synthesizer
from . import messages
from .admission import Admission, Ticket
from .audio import FORMATS, EncoderFactory
from .effects import CloseSocket, Effect, Listen, Retire, SendAudio, SendMessage
from .errors import (
    Draining,
    DuplicateUtterance,
    RateLimited,
    SlowConsumer,
    TooManyUtterances,
    UnknownUtterance,
    UtteranceEnded,
)
from .lifecycle import IllegalEvent, State
from .rates import Strikes, TokenBucket
from .settings import Settings
from .utterance import Utterance

NOT_ACCEPTABLE = 1003
POLICY = 1008
RESTARTING = 1012
SLOW_CONSUMER = 4001

_BAD_MESSAGES = 3
_RATE_REFUSALS = 20
_STRIKES_WINDOW_S = 10.0
_SLOW_AFTER_S = 1.0
"""A client that has not read, or played, for so long is warned."""
_TAILS = 8
"""Finished utterances remembered, because their last audio is still being heard."""
_NOT_READY_RETRY_MS = 2000

T = TypeVar("T")

log = logging.getLogger(__name__)


class Session:
    """Sans-I/O; synchronous; not thread-safe. `wake` is called when there are effects that nobody asked for just now."""

    def __init__(
        self,
        name: str,
        key: str,
        settings: Settings,
        synthesizer: Synthesizer,
        encoder_factory: EncoderFactory,
        admission: Admission,
        wake: Callable[[], None],
    ) -> None:
        self.name = name
        self._key = key
        self._settings = settings
        self._synthesizer = synthesizer
        self._encoder_factory = encoder_factory
        self._admission = admission
        self._wake = wake
        self._effects: deque[Effect] = deque()
        self._active: dict[str, Utterance] = {}
        self._tails: dict[str, Utterance] = {}
        self._next_number = 1
        self._message_rate = TokenBucket(settings.messages_per_s)
        self._start_rate = TokenBucket(settings.starts_per_s)
        self._interrupt_rate = TokenBucket(settings.interrupts_per_s)
        self._bad_messages = Strikes(_BAD_MESSAGES, _STRIKES_WINDOW_S)
        self._refusals = Strikes(_RATE_REFUSALS, _STRIKES_WINDOW_S)
        self._idle_close_s: float | None = None
        """Draining: without an utterance under way, the socket closes at this time."""
        self._closed = False

    @property
    def active(self) -> tuple[Utterance, ...]:
        """Utterances under way, queued ones included."""
        return tuple(self._active.values())

    @property
    def closing(self) -> bool:
        """The socket is to be closed; messages are no longer taken."""
        return self._closed

    @property
    def backlog(self) -> int:
        """Effects not taken yet; the driver stops reading the socket while there are many."""
        return len(self._effects)

    def open(self) -> None:
        """Greet the client."""
        self._send(
            messages.SessionOpened(
                session=self.name,
                default_voice=self._settings.voice or self._synthesizer.default_voice,
                formats=FORMATS,
                limits=self.limits,
            )
        )

    @property
    def limits(self) -> messages.Limits:
        return self._settings.session_limits(self._synthesizer.max_characters)

    # From the client

    def receive(self, payload: str | bytes, now_s: float) -> None:
        """Take one message. Never raises: what is wrong with it becomes an `error` message."""
        if self._closed:
            return
        if isinstance(payload, bytes):
            self._refuse(BadMessage("audio goes one way; send JSON in text frames"))
            self._close(NOT_ACCEPTABLE, "binary message")
            return
        name = None
        try:
            self._limit(self._message_rate, "messages", now_s)
            message = messages.parse(payload)
            name = None if isinstance(message, messages.Ping) else message.utterance
            self._take(message, now_s)
        except BadMessage as error:
            self._refuse(error, name)
            if self._bad_messages.strike(now_s):
                self._close(POLICY, "repeated bad messages")
        except RateLimited as error:
            self._refuse(error, name)
            if self._refusals.strike(now_s):
                self._close(POLICY, "rate limit")
        except (EmptyText, EngineError) as error:
            self._fail_named(name, error)
        except VoxgateError as error:
            self._refuse(error, name)

    def _take(self, message: messages.ClientMessage, now_s: float) -> None:
        match message:
            case messages.Text():
                with_text = self._find(message.utterance)
                self._allowed(with_text, lambda: with_text.add_text(message.text, now_s))
            case messages.Ack():
                # Acks cross with the end of the speech by nature: one for a finished utterance is no mistake.
                if (played := self._active.get(message.utterance)) is not None:
                    played.pacer.ack(message.played_samples, now_s)
                elif (tail := self._tails.get(message.utterance)) is not None:
                    tail.pacer.ack(message.played_samples, now_s)
            case messages.Start():
                self._start(message, now_s)
            case messages.Flush():
                flushed = self._find(message.utterance)
                self._allowed(flushed, flushed.flush)
            case messages.End():
                ended = self._find(message.utterance)
                self._allowed(ended, ended.end)
            case messages.Interrupt():
                self._interrupt(message, now_s)
            case messages.Ping():
                self._send(messages.Pong(id=message.id))

    def _start(self, message: messages.Start, now_s: float) -> None:
        # First what only refuses the message: an error of any other kind would end the utterance of that name.
        if message.utterance in self._active:
            raise DuplicateUtterance(f"utterance {message.utterance!r} is still under way")
        self._limit(self._start_rate, "starts", now_s)
        if self._idle_close_s is not None:
            raise Draining("the gateway is shutting down")
        if len(self._active) >= self._settings.utterances_per_session:
            raise TooManyUtterances(f"a socket has at most {len(self._active)} utterances under way")
        if self._synthesizer.state is not EngineState.READY:
            raise EngineNotReady("the voice model is not ready", retry_after_ms=_NOT_READY_RETRY_MS)
        request = message.request(self._settings.voice or self._synthesizer.default_voice)
        self._check(request)
        audio_format = message.format.audio_format()
        try:
            encoder = self._encoder_factory(audio_format)
        except ValueError as refused:
            raise UnsupportedFormat(str(refused), param="format") from refused
        utterance = Utterance(
            message.utterance,
            self._next_number,
            request,
            audio_format,
            encoder,
            max_characters=self.limits.characters_per_utterance,
            lead_ms=self._settings.lead_ms if message.pacing == "playback" else None,
            outbox_ms=self._settings.ahead_ms,
            words=message.words,
        )
        utterance.ticket = self._admission.join(
            self._key, lambda ticket, at_s: self._moved(utterance, ticket, at_s), now_s
        )
        self._next_number += 1
        self._tails.pop(message.utterance, None)
        self._active[message.utterance] = utterance
        log.info("utterance started", extra={"session": self.name, "utterance": utterance.number})
        if utterance.ticket.granted:
            self._admit(utterance)
        else:
            self._tell_position(utterance, utterance.ticket)

    def _check(self, request: SpeechRequest) -> None:
        """What would fail after the queue fails before it."""
        voices = self._synthesizer.voices
        if (voice := voices.get(request.voice)) is None:
            raise UnknownVoice(f"voices are {', '.join(voices)}", param="voice")
        if request.language not in voice.languages:
            raise UnknownLanguage(
                f"languages of this voice are {', '.join(voice.languages)}", param="language"
            )
        if request.instructions and not voice.instructions:
            raise UnsupportedOption("this voice takes no instructions", param="instructions")

    def _interrupt(self, message: messages.Interrupt, now_s: float) -> None:
        self._limit(self._interrupt_rate, "interrupts", now_s)
        utterance = self._find(message.utterance)
        reply = self._allowed(utterance, lambda: utterance.interrupt(message.played_ms, now_s))
        self._leave(utterance)
        self._send(reply)

    # From the pipeline

    def hear(self, utterance: Utterance, chunk: SpeechChunk) -> None:
        """A chunk of the utterance's speech is there. Ignored when the utterance is over."""
        if utterance.over:
            return
        try:
            utterance.hear(chunk)
        except Exception:
            log.exception("encoding failed", extra={"session": self.name, "utterance": utterance.number})
            self._fail(utterance, GenerationFailed("the audio could not be encoded"))
            return
        if utterance.words and chunk.words:
            words = tuple(
                messages.Word(text=w.text, start=w.start, end=w.end, start_ms=w.start_ms, end_ms=w.end_ms)
                for w in chunk.words
            )
            self._send(messages.Words(utterance=utterance.name, words=words))

    def spoke(self, utterance: Utterance) -> None:
        """The utterance's speech came to its end: its slot is free before the last packet leaves."""
        if not utterance.over:
            utterance.spoken()
            self._retire(utterance)

    def broke(self, utterance: Utterance, error: VoxgateError) -> None:
        """The utterance's speech failed."""
        if not utterance.over:
            self._fail(utterance, error)

    def _moved(self, utterance: Utterance, ticket: Ticket, now_s: float) -> None:  # noqa: ARG002 - admission's signature
        if utterance.over:
            return
        if ticket.granted:
            self._admit(utterance)
        else:
            self._tell_position(utterance, ticket)
        self._wake()

    def _admit(self, utterance: Utterance) -> None:
        try:
            utterance.speech = self._synthesizer.open(utterance.request)
            started = utterance.admit(utterance.speech)
        except VoxgateError as error:
            self._fail(utterance, error)
        else:
            self._send(started)
            self._effects.append(Listen(utterance))

    def _tell_position(self, utterance: Utterance, ticket: Ticket) -> None:
        self._send(messages.Queued(utterance=utterance.name, position=ticket.position, eta_ms=ticket.eta_ms))

    # From the clock and the process

    def drain(self, deadline_ms: int, idle_close_s: float) -> None:
        """Take no new utterances; close when none is under way, but not before `idle_close_s`."""
        if self._idle_close_s is None and not self._closed:
            self._idle_close_s = idle_close_s
            self._send(messages.GoingAway(deadline_ms=deadline_ms))
            self._wake()

    def end_now(self) -> None:
        """The drain's deadline: give every utterance up and close."""
        for utterance in self.active:
            self._fail(utterance, Draining("the gateway is shutting down"))
        self._close(RESTARTING, "shutting down")
        self._wake()

    def lost(self) -> tuple[Utterance, ...]:
        """The socket is gone: gives every utterance up; returns those whose speech is to be closed."""
        for utterance in self.active:
            self._fail(utterance, Draining("the socket is gone"))
        self._closed = True
        left = tuple(effect.utterance for effect in self._effects if isinstance(effect, Retire))
        self._effects.clear()
        return left

    def blocked(self, now_s: float, since_s: float) -> None:
        """A write waits for the client since `since_s`: warn once per utterance, close after the stall limit."""
        for utterance in self.active:
            self._judge(utterance, now_s, since_s)

    def next_effect(self, now_s: float) -> Effect | None:
        """What to do next, None when there is nothing now. One due packet per utterance in turn."""
        if not self._effects and not self._closed:
            for utterance in self.active:
                self._turn(utterance, now_s)
            if self._idle_close_s is not None and not self._active and now_s >= self._idle_close_s:
                self._close(RESTARTING, "shutting down")
        return self._effects.popleft() if self._effects else None

    def next_wake_s(self, now_s: float) -> float:
        """When `next_effect` will have something without any event; infinity for never."""
        if self._effects:
            return now_s
        if self._closed:
            return math.inf
        times_s = [self._wake_of_s(utterance, now_s) for utterance in self._active.values()]
        if self._idle_close_s is not None and not self._active:
            times_s.append(self._idle_close_s)
        return min(times_s, default=math.inf)

    def _wake_of_s(self, utterance: Utterance, now_s: float) -> float:
        stalled_s = utterance.stalled_since_s()
        patience_s = self._settings.stall_limit_ms / 1000 if utterance.warned else _SLOW_AFTER_S
        return min(utterance.next_wake_s(now_s), stalled_s + patience_s)

    def _turn(self, utterance: Utterance, now_s: float) -> None:
        ticket = utterance.ticket
        if ticket is not None and not ticket.granted:
            if now_s >= ticket.deadline_s:
                self._fail(utterance, self._admission.refusal("no talker slot became free in time"))
            return
        if (message := utterance.release(now_s)) is not None:
            self._effects.append(SendAudio(utterance, message))
        utterance.credit(now_s)
        if (done := utterance.drained()) is not None:
            self._leave(utterance)
            self._remember(utterance)
            self._send(done)
        else:
            self._judge(utterance, now_s, utterance.stalled_since_s())

    def _judge(self, utterance: Utterance, now_s: float, since_s: float) -> None:
        """Warn about, then give up, a client that takes no audio since `since_s`."""
        stalled_s = now_s - since_s
        if stalled_s >= self._settings.stall_limit_ms / 1000:
            for unheard in self.active:
                self._fail(unheard, SlowConsumer("the client stopped reading"))
            self._close(SLOW_CONSUMER, "slow consumer")
        elif stalled_s >= _SLOW_AFTER_S and not utterance.warned:
            utterance.warned = True
            message = "audio waits for the client to read and play it; generation is paused"
            self._send(messages.Warned(code="slow_consumer", message=message, utterance=utterance.name))

    # The ends of an utterance

    def _fail(self, utterance: Utterance, error: VoxgateError) -> None:
        if utterance.over:
            return
        partial = utterance.fail()
        self._leave(utterance)
        ours = isinstance(error, EngineError)
        level = logging.WARNING if ours else logging.INFO
        extra = {"session": self.name, "utterance": utterance.number, "code": error.code}
        log.log(level, "utterance failed", extra=extra)
        reply = messages.Failed.of(error, utterance=utterance.name, partial_audio=partial if ours else None)
        self._send(reply)

    def _fail_named(self, name: str | None, error: VoxgateError) -> None:
        utterance = self._active.get(name) if name is not None else None
        if utterance is None:
            self._refuse(error, name)
        else:
            self._fail(utterance, error)

    def _leave(self, utterance: Utterance) -> None:
        """The utterance is over: nothing of it is sent any more but the one message that says so."""
        self._active.pop(utterance.name, None)
        self._tails.pop(utterance.name, None)
        if utterance.state is not State.DONE:
            self._effects = deque(
                e
                for e in self._effects
                if not (isinstance(e, SendAudio | Listen) and e.utterance is utterance)
            )
        self._retire(utterance)

    def _retire(self, utterance: Utterance) -> None:
        if not utterance.retired:
            utterance.retired = True
            self._effects.append(Retire(utterance))

    def _remember(self, utterance: Utterance) -> None:
        self._tails[utterance.name] = utterance
        if len(self._tails) > _TAILS:
            del self._tails[next(iter(self._tails))]

    # Small change

    def _find(self, name: str) -> Utterance:
        found = self._active.get(name) or self._tails.get(name)
        if found is None:
            raise UnknownUtterance(f"no utterance {name!r} is under way")
        return found

    @staticmethod
    def _allowed(utterance: Utterance, act: Callable[[], T]) -> T:
        try:
            return act()
        except IllegalEvent as illegal:
            message = f"utterance {utterance.name!r} is {utterance.state}: no {illegal.event} any more"
            raise UtteranceEnded(message) from illegal

    @staticmethod
    def _limit(bucket: TokenBucket, what: str, now_s: float) -> None:
        if wait_s := bucket.take(now_s):
            raise RateLimited(f"too many {what}", retry_after_ms=math.ceil(wait_s * 1000))

    def _refuse(self, error: VoxgateError, utterance: str | None = None) -> None:
        self._send(messages.Failed.of(error, utterance=utterance))

    def _send(self, message: messages.ServerMessage) -> None:
        if not self._closed:
            self._effects.append(SendMessage(message.encode()))

    def _close(self, code: int, reason: str) -> None:
        if not self._closed:
            self._effects.append(CloseSocket(code, reason))
            self._closed = True
