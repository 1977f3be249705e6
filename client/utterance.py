"""A bounded queue between the session's reader and one utterance's listener; its end can carry an error."""
# TODO-DOC One utterance on a session: text goes in, audio and events come out, at the same time.

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from .errors import ProtocolViolation, SessionLost, SpeechError
from .events import SAMPLE_BYTES, Audio, AudioFormat, Done, Event, Interrupted, Notice, Started

T = TypeVar("T")


class EventQueue(Generic[T]):
    """One writer, one reader. `put` waits while full: the session then stops reading its socket.

    `close` ends it behind what is queued; `discard` ends it at once, as an interrupt does.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None

    async def put(self, item: T) -> None:
        """Append `item`; does nothing once closed. Cancelling appends nothing."""
        while len(self._items) >= self._capacity and not self._closed:
            await self._change()
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    async def get(self) -> T | None:
        """The next item, or None after the last; raises what it was closed with. Cancelling loses nothing."""
        while not self._items:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            await self._change()
        item = self._items.popleft()
        self._changed.set()
        return item

    def close(self, error: Exception | None = None) -> None:
        if not self._closed:
            self._closed = True
            self._error = error
        self._changed.set()

    def discard(self) -> None:
        self._items.clear()
        self.close()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_UNREAD_EVENTS = 1024
"""Unread messages of one utterance (80 s at the default packet) before the session stops reading."""


INTERRUPT_TIMEOUT_S = 10.0

FRAGMENT_REFUSED_CODE = "text_too_long"
AFTER_END_CODES = frozenset({"unknown_utterance", "utterance_ended"})
"""Answers to what crossed the utterance's end on the way; nothing was lost."""
MESSAGE_REFUSED_CODES = frozenset(
    {FRAGMENT_REFUSED_CODE, *AFTER_END_CODES, "bad_message", "duplicate_utterance", "rate_limited"}
)
"""Codes after which the gateway goes on with the utterance (docs/protocol.md, Errors)."""


class Utterance:
    """Made by `Session.utterance`. Send text from one task and listen from another, or one after the other.

    Raises SpeechError when the gateway ends the utterance with an error, SessionLost when the socket closes.
    """

    def __init__(self, id: str, format: AudioFormat, send: Send) -> None:
        self.id = id
        self.format = format
        """As asked for; as granted (with `pre_skip`) once `started` is set."""
        self.started: Started | None = None
        self.done: Done | None = None
        self.interrupted: Interrupted | None = None
        self._send = send
        self._inbox: EventQueue[Event] = EventQueue(MAX_UNREAD_EVENTS)
        self._next_seq = 0
        self._next_pts = 0
        self._last_seen = False
        self._refused: SpeechError | None = None
        self._failure: Exception | None = None
        self._over = False
        self._interrupting: asyncio.Future[Interrupted] | None = None

    @property
    def finished(self) -> bool:
        """Nothing more comes out of it."""
        return self.over or self._failure is not None

    @property
    def over(self) -> bool:
        """The gateway is done with it: nothing is left to stop there."""
        return self._over or self.done is not None or self.interrupted is not None

    # Text in

    async def send(self, text: str) -> None:
        """Append a fragment of any length; speech starts as soon as it can.

        Raises what ended the utterance meanwhile, or the refusal of an earlier fragment (`text_too_long`).
        """
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused
        await self._command("text", text=text)

    async def flush(self) -> None:
        """Speak all that was sent to its end, without waiting for more; more may follow."""
        await self._command("flush")

    async def end(self) -> None:
        """No more text follows."""
        await self._command("end")

    async def feed(self, fragments: Iterable[str] | AsyncIterable[str]) -> None:
        """Send every fragment as it comes, then `end`. An error of the source ends the listening too."""
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
        """Tell the gateway what the player has played; silently nothing after the end."""
        if not self.finished:
            await self._send({"type": "ack", "utterance": self.id, "played_samples": played_samples})

    async def interrupt(self, played_ms: int | None = None, timeout_s: float = INTERRUPT_TIMEOUT_S) -> Interrupted:
        """Stop speaking now; answers with what was heard until `played_ms` and what was not.

        Audio not yet listened to is dropped. It is answered after `done` too, while the last of
        the speech is still to be heard. Whoever interrupts meanwhile shares the answer. Raises SpeechError
        (`unknown_utterance`) later, and TimeoutError.
        """
        if self.interrupted is not None:
            return self.interrupted
        if self._failure is not None:
            raise self._failure
        self._inbox.discard()
        async with asyncio.timeout(timeout_s):
            if self._interrupting is None or self._interrupting.done():
                self._interrupting = asyncio.get_running_loop().create_future()
                command: dict[str, Any] = {"type": "interrupt", "utterance": self.id}
                await self._send(command if played_ms is None else command | {"played_ms": played_ms})
            # It may be awaited by several, any of whom may be cancelled.
            return await asyncio.shield(self._interrupting)

    async def answered(self) -> None:
        """Wait until an interrupt under way, if there is one, has its answer or has failed."""
        if self._interrupting is not None and not self._interrupting.done():
            await asyncio.wait({self._interrupting}, timeout=INTERRUPT_TIMEOUT_S)

    # Speech out

    async def events(self) -> AsyncIterator[Event]:
        """Everything about this utterance in order, Done or Interrupted at last."""
        while (event := await self._inbox.get()) is not None:
            yield event

    async def audio(self) -> AsyncIterator[Audio]:
        """The audio alone, in order and without a gap; ends with the speech, or at an interrupt."""
        async for event in self.events():
            if isinstance(event, Audio):
                yield event

    # From the session's reader

    async def receive(self, event: Event | SpeechError) -> None:
        """Take an event in; waits while the listener is far behind. Raises ProtocolViolation."""
        match event:
            case SpeechError():
                await self._receive_error(event)
                return
            case Started():
                self.started = event
                self.format = event.format
            case Audio():
                self._check_continuity(event)
            case Interrupted():
                self.interrupted = event
                if self._interrupting is not None and not self._interrupting.done():
                    self._interrupting.set_result(event)
            case Done():
                self._check_complete(event)
                self.done = event
            case _:
                pass
        await self._inbox.put(event)
        if self.finished:
            self._inbox.close()

    def fail(self, error: Exception) -> None:
        """End the utterance from this side: the listener gets what is queued, then `error`."""
        if not self.finished:
            self._failure = error
        self._inbox.close(error)
        if self._interrupting is not None and not self._interrupting.done():
            self._interrupting.set_exception(error)

    async def _receive_error(self, error: SpeechError) -> None:
        if self._interrupting is not None and not self._interrupting.done():
            self._interrupting.set_exception(error)
        if error.code == FRAGMENT_REFUSED_CODE or error.code in AFTER_END_CODES:
            self._refused = error if error.code == FRAGMENT_REFUSED_CODE else None
            await self._inbox.put(Notice(error.code, error.message))
        else:
            # Any other refused message leaves a hole in the text, or no utterance at all: better no speech.
            self.fail(error)
            self._over = error.code not in MESSAGE_REFUSED_CODES

    async def _command(self, type: str, **fields: Any) -> None:
        if self._failure is not None:
            raise self._failure
        if self.finished:
            raise SpeechError("utterance_ended", "the utterance is over")
        try:
            await self._send({"type": type, "utterance": self.id, **fields})
        except SessionLost as lost:
            # The reason the gateway gave before it closed says more than the closing.
            raise self._failure or lost from None

    def _check_continuity(self, audio: Audio) -> None:
        problem = None
        if audio.seq != self._next_seq:
            problem = f"seq {audio.seq} instead of {self._next_seq}"
        elif audio.pts != self._next_pts:
            problem = f"pts {audio.pts} instead of {self._next_pts}"
        elif audio.first != (audio.seq == 0):
            problem = "the first-message flag is wrong"
        elif self._last_seen:
            problem = "audio after the last message"
        elif (size := SAMPLE_BYTES.get(self.format.codec)) and len(audio.payload) != size * audio.samples:
            problem = f"{len(audio.payload)} bytes for {audio.samples} samples"
        if problem is not None:
            raise ProtocolViolation(f"utterance {self.id}, message {audio.seq}: {problem}")
        self._next_seq += 1
        self._next_pts += audio.samples
        self._last_seen = audio.last

    def _check_complete(self, done: Done) -> None:
        complete = self._next_pts - self.format.pre_skip
        # A coded packet is never cut short: the decoder's last samples may be padding.
        whole = complete == done.samples if self.format.codec in SAMPLE_BYTES else complete >= done.samples
        if not whole or not self._last_seen:
            raise ProtocolViolation(f"utterance {self.id}: done after {complete} of {done.samples} samples")
