"""One utterance of a session: text is sent and audio is received at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from .continuity import Continuity
from .errors import ClientError, SessionLost, SpeechError
from .event_queue import EventQueue
from .events import (
    Audio,
    AudioFormat,
    Continued,
    Done,
    Event,
    Interrupted,
    Notice,
    Retracted,
    Started,
    Visemes,
    Words,
)
from .sent_utterance import SentUtterance

T = TypeVar("T")
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_UNREAD_EVENTS = 1024
"""Unread events of one utterance (80 s of audio in packets of 80 ms) at which the session stops reading."""
INTERRUPT_TIMEOUT_S = 10.0
RETRACT_TIMEOUT_S = 10.0
DRAINING_CODE = "draining"
RESTORE_PAUSE_S = 0.25
"""Least pause before a gateway that had no room for the utterance is asked again."""

FRAGMENT_REFUSED_CODE = "text_too_long"
TEXT_CALLS = ("text", "flush")
"""Kinds of calls after whose refusal the utterance goes on; the next call about its text raises the refusal."""
CONTROL_CALLS = ("ack", "interrupt", "continue", "retract")
"""Kinds of calls that are not about the text."""
HOLD_SLACK_S = 1.0
"""Seconds between looks whether a hold that is over was prolonged by `continue`, whose answer is under way."""
UNKNOWN_CODE = "unknown_utterance"
AFTER_END_CODES = frozenset({UNKNOWN_CODE, "utterance_ended"})
"""Codes of answers to messages that the gateway received after the utterance's end."""
MESSAGE_REFUSED_CODES = frozenset(
    {FRAGMENT_REFUSED_CODE, *AFTER_END_CODES, "bad_message", "duplicate_utterance", "not_held", "rate_limited"}
)
"""Codes after which the gateway continues the utterance (docs/protocol.md, "Errors")."""


class Utterance:
    """One utterance, made by `Session.utterance`. Text can be sent by one task and audio read by another.

    Methods raise SpeechError when the gateway ends the utterance with an error, and SessionLost when the connection
    closes.
    """

    def __init__(self, id: str, format: AudioFormat, send: Send, sent: SentUtterance | None = None) -> None:
        self.id = id
        self.sent = sent or SentUtterance({"type": "start", "utterance": id})
        """What another gateway needs to go on with it."""
        self.format = format
        """As requested; as granted, with `pre_skip`, once `started` is set."""
        self.started: Started | None = None
        self.done: Done | None = None
        self.interrupted: Interrupted | None = None
        self._send = send
        self._events: EventQueue[Event] = EventQueue(MAX_UNREAD_EVENTS)
        self._continuity = Continuity(id)
        self._refused_call: SpeechError | None = None
        self._calls = 0
        self._text_ended = False
        self._failure: Exception | None = None
        self._ended_by_error = False
        self._interrupt_answer: asyncio.Future[Interrupted] | None = None
        self._retractions: deque[asyncio.Future[Retracted]] = deque()
        """Those that wait for an answer, in order."""
        self._interrupt: dict[str, Any] | None = None
        """The message that waits for that answer."""
        self.held: Interrupted | None = None
        """The answer to the interrupt while the utterance is held."""
        self._hold_timer: asyncio.TimerHandle | None = None
        self._continue_answer: asyncio.Future[Continued] | None = None
        self._aside: list[Event] | None = None
        """Unread audio while an interrupt that holds the utterance is not answered, and nothing while it is held."""
        self._restoring_until_s: float | None = None
        """Until when a gateway that refuses to go on with it is asked again; None once one goes on."""
        self._left_out = False
        """Whether the present gateway has refused it because it is shutting down, and another one will be asked."""
        self._asking: asyncio.Task[None] | None = None
        self._moved = False
        """Whether another gateway is to go on with it, and has not sent any audio."""

    @property
    def finished(self) -> bool:
        """Whether the utterance has ended, on either side: no more events follow those that are queued."""
        return self.gateway_done or self._failure is not None

    @property
    def gateway_done(self) -> bool:
        """Whether the gateway has ended the utterance, so that there is nothing to stop."""
        return self._ended_by_error or self.done is not None or self.interrupted is not None

    # Text

    async def send(self, text: str) -> None:
        """Sends a fragment of the text, of any length; speech starts as soon as it can.

        Raises the error that ended the utterance, or the refusal of an earlier fragment, whose `characters` are those
        accepted before it. Cancelling it may leave the fragment sent.
        """
        self._raise_refusal()
        await self._command("text", text=text)

    async def flush(self) -> None:
        """Has the text sent so far spoken without waiting for more; more may follow. Raises as `send`."""
        self._raise_refusal()
        await self._command("flush")

    async def end(self) -> None:
        """Ends the text. The utterance ends when all of it has been spoken. Raises as `send`; call it again then."""
        self._raise_refusal()
        self._text_ended = True
        await self._command("end")

    async def feed(self, fragments: Iterable[str] | AsyncIterable[str]) -> None:
        """Sends every fragment as it comes, then ends the text.

        An error of `fragments` is raised here and also where the audio is read, a cancellation of its own as
        ClientError. Cancelling leaves the text open.
        """
        try:
            if isinstance(fragments, AsyncIterable):
                async for fragment in fragments:
                    await self.send(fragment)
            else:
                for fragment in fragments:
                    await self.send(fragment)
            await self.end()
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            failure = ClientError("the source of the text was cancelled")
            self.fail(failure)
            raise failure from error
        except Exception as error:
            self.fail(error)
            raise

    async def ack(self, played_samples: int) -> None:
        """Reports the playback position to the gateway; does nothing after the end."""
        if not self.finished:
            await self._command("ack", played_samples=played_samples)

    async def interrupt(
        self, played_ms: int | None = None, timeout_s: float = INTERRUPT_TIMEOUT_S, *, hold_ms: int | None = None
    ) -> Interrupted:
        """Stops the utterance at the playback position `played_ms`; returns which text was spoken and which was not.

        Drops audio that has not been read. It can still be called after `done`, while the last audio is playing; once
        the gateway has forgotten the utterance it raises SpeechError (`unknown_utterance`); outside of its block,
        ClientError. Concurrent calls share one answer. Raises TimeoutError after `timeout_s`. Cancelling it does not
        withdraw the interrupt.

        With `hold_ms`, at most the session's `limits["hold_max_ms"]`, the utterance is kept for so long, and
        `continue_speech` has it go on; the answer's `hold_ms` is None where the gateway has not kept it. Unread audio
        before the answer's `played_ms` can still be read, so that none is missing where it goes on.
        """
        if self.interrupted is not None:
            return self.interrupted
        if self._failure is not None:
            raise self._failure
        if hold_ms is None:
            self._events.discard()
        elif self._aside is None:
            self._aside = self._events.remove(lambda event: isinstance(event, Audio | Done))
            self._events.reopen()  # of a done utterance whose audio is still played
        async with asyncio.timeout(timeout_s):
            # Several tasks may wait for an answer, and any of them may be cancelled.
            while (pending := self._pending_interrupt) is not None:
                if self._interrupt is not None and self._interrupt.get("hold_ms") == hold_ms:
                    return await asyncio.shield(pending)
                await asyncio.wait({pending})
            return await self._ask_to_stop(played_ms, hold_ms)

    async def _ask_to_stop(self, played_ms: int | None, hold_ms: int | None) -> Interrupted:
        if self.interrupted is not None:  # by an interrupt that was answered meanwhile
            return self.interrupted
        self._interrupt_answer = asyncio.get_running_loop().create_future()
        command: dict[str, Any] = {"type": "interrupt", "utterance": self.id, "id": self._next_id("interrupt")}
        options = {"played_ms": played_ms, "hold_ms": hold_ms}
        self._interrupt = command | {name: value for name, value in options.items() if value is not None}
        await self._send(self._interrupt)
        return await asyncio.shield(self._interrupt_answer)

    @property
    def _pending_interrupt(self) -> asyncio.Future[Interrupted] | None:
        answer = self._interrupt_answer
        return None if answer is None or answer.done() else answer

    async def continue_speech(self, timeout_s: float = INTERRUPT_TIMEOUT_S) -> Continued:
        """Has the held utterance go on from what was heard; the audio that was not follows, then the rest.

        Its first message comes without the samples that were heard (`Audio.skip_samples`). Raises SpeechError:
        `utterance_ended` when it is not kept any more, `not_held`, or the error that ended it. Concurrent calls share
        one answer. Raises TimeoutError after `timeout_s`. Cancelling it does not withdraw the request.
        """
        if self._failure is not None:
            raise self._failure
        if self.held is None:
            code = "utterance_ended" if self.finished else "not_held"
            raise SpeechError(code, "the utterance must be held to be continued")
        async with asyncio.timeout(timeout_s):
            if self._continue_answer is None or self._continue_answer.done():
                self._continue_answer = asyncio.get_running_loop().create_future()
                await self._send({"type": "continue", "utterance": self.id, "id": self._next_id("continue")})
            return await asyncio.shield(self._continue_answer)

    async def retract(self, characters: int = 0, timeout_s: float = RETRACT_TIMEOUT_S) -> Retracted:
        """Takes back all text but its first `characters` characters that was not spoken yet; returns what stays.

        More text may follow at once, also after `end`, which has to be called again. Raises SpeechError
        (`utterance_ended`, `rate_limited`), TimeoutError after `timeout_s`. Cancelling it does not withdraw the
        retraction.
        """
        self._raise_refusal()
        answer: asyncio.Future[Retracted] = asyncio.get_running_loop().create_future()
        self._text_ended = False
        self._retractions.append(answer)
        try:
            await self._command("retract", characters=characters)
        except BaseException:
            self._retractions.remove(answer)
            raise
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(answer)

    async def wait_for_interrupt_answer(self) -> None:
        """Waits until a pending interrupt, if any, was answered or failed. Used by the session."""
        if (pending := self._pending_interrupt) is not None:
            await asyncio.wait({pending}, timeout=INTERRUPT_TIMEOUT_S)

    # Events

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yields every event of the utterance in order; the last one is Done or Interrupted.

        After an interrupt of this side it ends without an event. Cancelling it loses no event.
        """
        while (event := await self._events.get()) is not None:
            yield event

    async def audio(self) -> AsyncGenerator[Audio, None]:
        """Yields the audio in order and without gaps, until the end of the speech or an interrupt."""
        async for event in self.events():
            if isinstance(event, Audio):
                yield event

    # Another gateway

    @property
    def restorable(self) -> bool:
        """Whether another gateway can go on with it, or need not: nothing was received of it, or a checkpoint."""
        received = self._continuity.next_seq or self.sent.words or self.sent.visemes
        return self.finished or not received or bool(self.sent.parts)

    def restore(self, deadline_s: float) -> Iterator[dict[str, Any]]:
        """Yields what another gateway needs to go on with it. Without a checkpoint it fails."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self.held is not None:  # another gateway does not have it
            self._let_go()
        if self.finished:
            return
        if not self.restorable:
            self.fail(SessionLost(None, "the gateway was lost, and the utterance has no checkpoint"))
            return
        self._restoring_until_s, self._moved, self._left_out = deadline_s, True, False
        known = None
        if (started := self.started) is not None:
            known = {"voice": started.voice, "language": started.language, "seed": started.seed}
        yield from self.sent.messages(known, self._continuity.next_seq, last=self._continuity.last_received)

    def leave_out(self, error: SpeechError) -> bool:
        """Whether the error only says that a gateway which shuts down does not begin it: another one will."""
        if self.started is not None:
            return False
        self._left_out |= error.code == DRAINING_CODE
        return self._left_out and error.code in (DRAINING_CODE, *AFTER_END_CODES)

    @property
    def _restoring(self) -> bool:
        """Whether a gateway has been asked to go on, or is going to be, and has not begun to."""
        return self._restoring_until_s is not None or self._asking is not None

    def _asks_again(self, error: SpeechError) -> bool:
        """Whether another gateway may still go on with the utterance that was refused now; asks again then."""
        deadline_s, self._restoring_until_s = self._restoring_until_s, None
        if deadline_s is None or not error.retryable:
            return False
        pause_s = max(RESTORE_PAUSE_S, (error.retry_after_ms or 0) / 1000)
        if asyncio.get_running_loop().time() + pause_s >= deadline_s:
            return False
        self._asking = asyncio.create_task(self._ask_again(pause_s, deadline_s), name="voxgate restore")
        return True

    async def _ask_again(self, pause_s: float, deadline_s: float) -> None:
        await asyncio.sleep(pause_s)
        self._asking = None
        with suppress(ClientError):
            for message in self.restore(deadline_s):
                await self._send(message)

    async def _repeat_interrupt(self) -> None:
        """A gateway goes on with the utterance: sends it the interrupt that the former one has not answered."""
        self._moved = False
        if self._interrupt is not None and self._pending_interrupt is not None:
            await self._send(self._interrupt)

    # From the session's reader

    async def receive(self, event: Event | SpeechError) -> None:
        """Queues an event; waits while too many are unread. Raises ProtocolViolation.

        Audio that arrives after the utterance has failed is checked and dropped.
        """
        match event:
            case SpeechError():
                await self._receive_error(event)
                return
            case Started():
                if self._asking is not None:
                    self._asking.cancel()
                    self._asking = None
                again, self._restoring_until_s = self.started is not None, None
                self.started, self.format = event, event.format
                if again:
                    return
            case Audio():
                event = self._continuity.check(event, self.format)
            case Words():
                self.sent.words += [(word.start, word.end_ms) for word in event.words]
            case Visemes():
                self.sent.visemes += [viseme.start_ms for viseme in event.visemes]
            case Retracted():
                self.sent.retracted(event)
                if self._retractions:
                    _settle(self._retractions.popleft(), event)
            case Interrupted():
                self._take_interrupted(event)
                _settle(self._interrupt_answer, event)
            case Continued():
                self._continuity.rewind(event)
                self._end_hold()
                _settle(self._continue_answer, event)
            case Done():
                self._continuity.check_complete(event, self.format)
                self.done = event
        if self._moved and isinstance(event, Audio | Done):
            await self._repeat_interrupt()
        if self._aside is None or not isinstance(event, Audio | Done):
            await self._events.put(event)
        elif self.held is None:
            self._aside.append(event)
        if self.finished and self._aside is None:
            self._events.close()
            self._fail_retractions(SpeechError("utterance_ended", "the utterance has ended"))

    def _fail_retractions(self, error: Exception) -> None:
        while self._retractions:
            _settle(self._retractions.popleft(), error)

    def notify(self, event: Event) -> None:
        """Queues an event about the connection, without waiting."""
        self._events.append(event)

    def fail(self, error: Exception) -> None:
        """Ends the utterance on this side: the reader gets the queued events, then `error`."""
        if not self.finished:
            self._failure = error
        self._events.close(error)
        self._end_hold()
        self._fail_retractions(error)
        _settle(self._interrupt_answer, error)
        _settle(self._continue_answer, error)

    def leave(self) -> None:
        """Has calls fail: nothing reaches the utterance any more."""
        left = ClientError("the block of the utterance was left")
        self.fail(left)
        self._failure = self._failure or left

    # Holds

    def _take_interrupted(self, event: Interrupted) -> None:
        if event.hold_ms is None:
            self._end_hold()
            self.interrupted = event
            return
        unread = self._aside or []
        self._end_hold()
        position = event.played_ms * self.format.sample_rate // 1000 + self.format.pre_skip
        self._events.put_back([each for each in unread if isinstance(each, Audio) and each.pts < position])
        self.held, self.done, self._aside = event, None, []
        self._hold_timer = asyncio.get_running_loop().call_later(event.hold_ms / 1000, self._hold_over)

    def _hold_over(self) -> None:
        """The gateway has let the utterance go, unless it has been asked to go on."""
        if self._continue_answer is not None and not self._continue_answer.done():
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_SLACK_S, self._hold_over)
        else:
            self._let_go()

    def _let_go(self) -> None:
        """The held utterance is over: it ends as an interrupted one."""
        self.interrupted = self.held
        self._end_hold()
        self._events.close()
        over = SpeechError("utterance_ended", "the utterance is not held any more")
        self._fail_retractions(over)
        _settle(self._continue_answer, over)

    def _end_hold(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        self.held = self._hold_timer = self._aside = None

    def _hold_refused(self) -> None:
        """The gateway has refused to hold the utterance, which goes on with the audio that was put aside."""
        if self.held is None and self._aside is not None:
            self._events.put_back(self._aside)
            self._aside = None
            if self.finished:
                self._events.close()

    async def _receive_error(self, error: SpeechError) -> None:
        call, _, number = (error.message_id or "").partition("-")
        refuses_message = call != "" and error.code in MESSAGE_REFUSED_CODES
        if error.code in AFTER_END_CODES:
            if error.code == UNKNOWN_CODE and call and self._restoring:
                return  # of a message that is sent again once a gateway goes on with the utterance
        elif not refuses_message and self._asks_again(error):
            return
        if call == "retract" and self._retractions and refuses_message:
            _settle(self._retractions.popleft(), error)
            self.sent.forget(error.message_id or "")
            return
        refused = error.code in MESSAGE_REFUSED_CODES
        # The refusal of an earlier call is not the answer to an interrupt.
        answers = not refused or call in ("", "interrupt")
        if call == "continue" and self._continue_answer is not None and not self._continue_answer.done():
            self._continue_answer.set_exception(error)
            if error.code in AFTER_END_CODES and self.held is not None:
                self._let_go()
                return
        elif answers and (pending := self._pending_interrupt) is not None:
            _settle(pending, error)
            self._hold_refused()
        if error.code in (FRAGMENT_REFUSED_CODE, *AFTER_END_CODES) or (refused and self._survives(call, number)):
            if error.code not in AFTER_END_CODES and call not in CONTROL_CALLS:
                self._refused_call = error
                self.sent.forget(error.message_id or "")
            await self._events.put(Notice(error.code, error.message))
        else:
            # Any other refused message means that text is missing or that there is no utterance.
            self.fail(error)
            self._ended_by_error = error.code not in MESSAGE_REFUSED_CODES

    def _survives(self, call: str, number: str) -> bool:
        """Whether the utterance goes on when that call is refused: the caller still learns of it.

        It does not where text is refused that was sent again by itself, as number 0.
        """
        return call in CONTROL_CALLS or (call in TEXT_CALLS and number != "0" and not self._text_ended)

    def _raise_refusal(self) -> None:
        refused, self._refused_call = self._refused_call, None
        if refused is not None:
            raise refused

    def _next_id(self, call: str) -> str:
        self._calls += 1
        return f"{call}-{self._calls}"

    async def _command(self, kind: str, **fields: Any) -> None:
        if self._failure is not None:
            raise self._failure
        if self.finished:
            raise SpeechError("utterance_ended", "the utterance has ended")
        try:
            message = {"type": kind, "utterance": self.id, "id": self._next_id(kind), **fields}
            await self._send(message)
            self.sent.record(message)  # not earlier: another gateway that takes over meanwhile is sent it once
        except SessionLost as lost:
            # An error that the gateway sent before it closed the connection is more precise.
            raise self._failure or lost from None


def _settle(answer: asyncio.Future[T] | None, result: T | Exception) -> None:
    """Gives a call that waits its answer, or its error."""
    if answer is None or answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        answer.exception()  # an error that nothing waits for is not to be logged
    else:
        answer.set_result(result)
