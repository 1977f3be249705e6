"""One utterance of a session: text is sent and audio is received at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from .errors import ClientError, ProtocolViolation, SessionLost, SpeechError
from .events import SAMPLE_BYTES, Audio, AudioFormat, Done, Event, Interrupted, Notice, Started, Visemes, Words
from .sent_utterance import SentUtterance

T = TypeVar("T")
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_UNREAD_EVENTS = 1024
"""Unread events of one utterance (80 s of audio in packets of 80 ms) at which the session stops reading."""
INTERRUPT_TIMEOUT_S = 10.0
DRAINING_CODE = "draining"
RESTORE_PAUSE_S = 0.25
"""Least pause before a gateway that had no room for the utterance is asked again."""

FRAGMENT_REFUSED_CODE = "text_too_long"
TEXT_CALLS = ("text", "flush")
"""Kinds of calls after whose refusal the utterance goes on; the next call about its text raises the refusal."""
AFTER_END_CODES = frozenset({"unknown_utterance", "utterance_ended"})
"""Codes of answers to messages that the gateway received after the utterance's end."""
MESSAGE_REFUSED_CODES = frozenset(
    {FRAGMENT_REFUSED_CODE, *AFTER_END_CODES, "bad_message", "duplicate_utterance", "rate_limited"}
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
        self._next_seq = 0
        self._next_pts = 0
        self._last_received = False
        self._refused_call: SpeechError | None = None
        self._calls = 0
        self._text_ended = False
        self._failure: Exception | None = None
        self._ended_by_error = False
        self._interrupt_answer: asyncio.Future[Interrupted] | None = None
        self._interrupt: dict[str, Any] | None = None
        """The message that waits for that answer."""
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

        An error of `fragments` is raised here and also where the audio is read. Cancelling leaves the text open.
        """
        try:
            if isinstance(fragments, AsyncIterable):
                async for fragment in fragments:
                    await self.send(fragment)
            else:
                for fragment in fragments:
                    await self.send(fragment)
            await self.end()
        except Exception as error:
            self.fail(error)
            raise

    async def ack(self, played_samples: int) -> None:
        """Reports the playback position to the gateway; does nothing after the end."""
        if not self.finished:
            await self._command("ack", played_samples=played_samples)

    async def interrupt(self, played_ms: int | None = None, timeout_s: float = INTERRUPT_TIMEOUT_S) -> Interrupted:
        """Stops the utterance at the playback position `played_ms`; returns which text was spoken and which was not.

        Drops audio that has not been read. It can still be called after `done`, while the last audio is playing; once
        the gateway has forgotten the utterance it raises SpeechError (`unknown_utterance`). Concurrent calls share one
        answer. Raises TimeoutError after `timeout_s`. Cancelling it does not withdraw the interrupt.
        """
        if self.interrupted is not None:
            return self.interrupted
        if self._failure is not None:
            raise self._failure
        self._events.discard()
        async with asyncio.timeout(timeout_s):
            if self._interrupt_answer is None or self._interrupt_answer.done():
                self._interrupt_answer = asyncio.get_running_loop().create_future()
                command: dict[str, Any] = {"type": "interrupt", "utterance": self.id, "id": self._next_id("interrupt")}
                self._interrupt = command if played_ms is None else command | {"played_ms": played_ms}
                await self._send(self._interrupt)
            # Several tasks may wait for it, and any of them may be cancelled.
            return await asyncio.shield(self._interrupt_answer)

    async def wait_for_interrupt_answer(self) -> None:
        """Waits until a pending interrupt, if any, was answered or failed. Used by the session."""
        if self._interrupt_answer is not None and not self._interrupt_answer.done():
            await asyncio.wait({self._interrupt_answer}, timeout=INTERRUPT_TIMEOUT_S)

    # Events

    async def events(self) -> AsyncIterator[Event]:
        """Yields every event of the utterance in order; the last one is Done or Interrupted.

        After an interrupt of this side it ends without an event. Cancelling it loses no event.
        """
        while (event := await self._events.get()) is not None:
            yield event

    async def audio(self) -> AsyncIterator[Audio]:
        """Yields the audio in order and without gaps, until the end of the speech or an interrupt."""
        async for event in self.events():
            if isinstance(event, Audio):
                yield event

    # Another gateway

    @property
    def restorable(self) -> bool:
        """Whether another gateway can go on with it, or need not: it has not started, or has a checkpoint."""
        return self.finished or self.started is None or bool(self.sent.parts)

    def restore(self, deadline_s: float) -> Iterator[dict[str, Any]]:
        """Yields what another gateway needs to go on with it. Without a checkpoint it fails."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self.finished:
            return
        if not self.restorable:
            self.fail(SessionLost(None, "the gateway was lost, and the utterance has no checkpoint"))
            return
        self._restoring_until_s, self._moved, self._left_out = deadline_s, True, False
        known = None
        if (started := self.started) is not None:
            known = {"voice": started.voice, "language": started.language, "seed": started.seed}
        yield from self.sent.messages(known, self._next_seq, last=self._last_received)

    def leave_out(self, error: SpeechError) -> bool:
        """Whether the error only says that a gateway which shuts down does not begin it: another one will."""
        if self.started is not None:
            return False
        self._left_out |= error.code == DRAINING_CODE
        return self._left_out and error.code in (DRAINING_CODE, *AFTER_END_CODES)

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
        answer, self._moved = self._interrupt_answer, False
        if self._interrupt is not None and answer is not None and not answer.done():
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
                again, self._restoring_until_s = self.started is not None, None
                self.started, self.format = event, event.format
                if again:
                    return
            case Audio():
                self._check_continuity(event)
            case Words():
                self.sent.words += len(event.words)
            case Visemes():
                self.sent.visemes += len(event.visemes)
            case Interrupted():
                self.interrupted = event
                if self._interrupt_answer is not None and not self._interrupt_answer.done():
                    self._interrupt_answer.set_result(event)
            case Done():
                self._check_complete(event)
                self.done = event
            case _:
                pass
        if self._moved and isinstance(event, Audio | Done):
            await self._repeat_interrupt()
        await self._events.put(event)
        if self.finished:
            self._events.close()

    def notify(self, event: Event) -> None:
        """Queues an event about the connection, without waiting."""
        self._events.append(event)

    def fail(self, error: Exception) -> None:
        """Ends the utterance on this side: the reader gets the queued events, then `error`."""
        if not self.finished:
            self._failure = error
        self._events.close(error)
        if self._interrupt_answer is not None and not self._interrupt_answer.done():
            self._interrupt_answer.set_exception(error)

    async def _receive_error(self, error: SpeechError) -> None:
        if error.code not in AFTER_END_CODES and self._asks_again(error):
            return
        call = (error.message_id or "").partition("-")[0]
        refused = error.code in MESSAGE_REFUSED_CODES
        # The refusal of an earlier call is not the answer to an interrupt.
        answers = not refused or call in ("", "interrupt")
        if answers and self._interrupt_answer is not None and not self._interrupt_answer.done():
            self._interrupt_answer.set_exception(error)
        if error.code == FRAGMENT_REFUSED_CODE or error.code in AFTER_END_CODES or (refused and self._survives(call)):
            if error.code not in AFTER_END_CODES and call not in ("ack", "interrupt"):
                self._refused_call = error
                self.sent.forget(error.message_id or "")
            await self._events.put(Notice(error.code, error.message))
        else:
            # Any other refused message means that text is missing or that there is no utterance.
            self.fail(error)
            self._ended_by_error = error.code not in MESSAGE_REFUSED_CODES

    def _survives(self, call: str) -> bool:
        """Whether the utterance goes on when that call is refused: the caller still learns of it."""
        return call in ("ack", "interrupt") or (call in TEXT_CALLS and not self._text_ended)

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

    def _check_continuity(self, audio: Audio) -> None:
        problem = None
        if audio.seq != self._next_seq:
            problem = f"seq must be {self._next_seq}, got {audio.seq}"
        elif audio.pts != self._next_pts:
            problem = f"pts must be {self._next_pts}, got {audio.pts}"
        elif audio.first != (audio.seq == 0):
            problem = "the flag of the first message is wrong"
        elif self._last_received:
            problem = "audio after the last message"
        elif (size := SAMPLE_BYTES.get(self.format.codec)) and len(audio.payload) != size * audio.samples:
            problem = f"{audio.samples} samples must have {size * audio.samples} bytes, got {len(audio.payload)}"
        if problem is not None:
            raise ProtocolViolation(f"utterance {self.id}, message {audio.seq}: {problem}")
        self._next_seq += 1
        self._next_pts += audio.samples
        self._last_received = audio.last

    def _check_complete(self, done: Done) -> None:
        received = self._next_pts - self.format.pre_skip
        # Coded packets have a fixed length: the last one may end with padding.
        complete = received == done.samples if self.format.codec in SAMPLE_BYTES else received >= done.samples
        if not complete or not self._last_received:
            raise ProtocolViolation(f"utterance {self.id}: done after {received} of {done.samples} samples")


class EventQueue(Generic[T]):
    """A bounded queue from the session's reader to the reader of one utterance; its end can carry an error."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None

    async def put(self, item: T) -> None:
        """Appends `item`; waits while the queue is full, does nothing once it is closed. Cancelling appends nothing."""
        while len(self._items) >= self._capacity and not self._closed:
            await self._wait_for_change()
        self.append(item)

    def append(self, item: T) -> None:
        """Appends `item` although the queue may be full; does nothing once it is closed."""
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    async def get(self) -> T | None:
        """Returns the next item; None, or the error of `close` raised, after the last. Cancelling loses no item."""
        while not self._items:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            await self._wait_for_change()
        item = self._items.popleft()
        self._changed.set()
        return item

    def close(self, error: Exception | None = None) -> None:
        """Ends the queue after its present items, with `error` if given. Only the first call counts."""
        if not self._closed:
            self._closed = True
            self._error = error
        self._changed.set()

    def discard(self) -> None:
        """Drops the present items and ends the queue."""
        self._items.clear()
        self.close()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
