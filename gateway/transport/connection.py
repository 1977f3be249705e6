"""Drives one session: performs its effects on the socket and on the speeches, and reports events to it.

A connection runs one reading task, one writing task, and one task for each speech. The session decides everything
(see `session.session`); this is the only place that waits for the network on its behalf.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple, Protocol

from voxgate.pipeline.errors import GenerationFailed, VoxgateError
from voxgate.pipeline.interface import Speech
from voxgate.pipeline.text.lexicon.lexicon import Lexicon

from ..session.admission import Admission, Ticket
from ..session.effects import (
    CloseSocket,
    CloseSpeech,
    Effect,
    LoadDictionaries,
    LoseSocket,
    ReadSpeech,
    RewindSpeech,
    SendAudio,
    SendMessage,
    SendProbe,
    SuspendSpeech,
)
from ..session.pacer import TIMER_SLACK_S
from ..session.session import ServerSession
from ..session.utterance import ServerUtterance

_MAX_BACKLOG = 64
"""Effects that may wait for a slow reader before its own messages are left unread."""
_CLOSE_DEADLINE_S = 60.0
"""Seconds for the end of a speech; the pipeline's own deadlines are shorter. Only a defect reaches this one."""
_BLOCKED_POLL_S = 0.5
"""Interval at which the session judges a client while a write to it is blocked."""
END_STEPS = 3
"""What the end of a socket or of a session counts among the steps of a turn of the event loop."""
UTTERANCE_END_STEPS = 8
"""What each active utterance adds to that: its speech is closed, and its record written."""

log = logging.getLogger(__name__)


class SocketClosed(Exception):
    """The socket is closed, by either side or by the network."""


class Socket(Protocol):
    """What a connection needs of a socket: a WebSocket (`websocket`) or an HTTP response (`http.streaming`)."""

    @property
    def close_code(self) -> int | None:
        """Close code; None while the socket is open."""

    async def receive(self) -> str | bytes:
        """Returns the next message. Raises SocketClosed. Cancelling it loses no message."""

    def send(self, message: str | bytes) -> None:
        """Writes a message without waiting. Raises SocketClosed."""

    @property
    def blocked(self) -> bool:
        """Whether the write buffer is above its limit: call `wait_writable` before the next `send`."""

    async def wait_writable(self) -> None:
        """Waits until the write buffer is below its limit or the socket closed. Cancelling it loses nothing."""

    def probe(self, on_read: Callable[[], None]) -> None:
        """Has `on_read` called when the client has read everything sent so far. Raises SocketClosed."""

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:
        """Closes the socket with `code`; aborts the connection after `timeout_s`."""


class _Reader(NamedTuple):
    """The task that reads a speech, and the event that lets it continue when the outbox has room again."""

    task: asyncio.Task[None]
    has_room: asyncio.Event


class Connection:
    """One socket with its session. `run` serves it to its end."""

    def __init__(
        self,
        socket: Socket,
        speech_closer: SpeechCloser,
        take_turn: Callable[[int], Awaitable[None]],
        message_delay_s: Callable[[float], float] = lambda _: 0.0,
    ) -> None:
        """`take_turn` returns when so many steps may be done; one is handling a message, or encoding a chunk.

        `message_delay_s`: called at each message with the time; returns the seconds after which it is handled.
        """
        self._socket = socket
        self._take_turn = take_turn
        self._message_delay_s = message_delay_s
        self._speech_closer = speech_closer
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.wake = self._changed.set
        """Has the writer look for effects soon. Does not refer to the connection, to which its session has no way."""
        self._next_wake_s = math.inf
        """When the writer wakes without an event."""
        self._timer: asyncio.TimerHandle | None = None
        """Wakes it then."""
        self._can_receive = asyncio.Event()
        """Wakes the reader, which waits while the backlog is long, or messages are deferred."""
        self._readers: dict[ServerUtterance, _Reader] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        """Suspensions, and the loading of dictionaries."""
        self._tasks: asyncio.TaskGroup
        self._session: ServerSession

    def on_detached(self) -> None:
        """The socket lost its connection and waits for another one."""
        self._session.on_detached()

    def on_attached(self) -> None:
        """The socket has a connection again."""
        self._session.on_attached(self._loop.time())

    async def run(self, session: ServerSession) -> None:
        """Serves the socket until it is closed. Cancelling it ends every utterance; their speeches close later."""
        self._session = session
        session.open(self._loop.time())
        try:
            async with asyncio.TaskGroup() as self._tasks:
                halves = [self._tasks.create_task(half) for half in (self._read(), self._write())]
                try:
                    # The end of either half ends the other, which may wait for something that only the first one does.
                    await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                    await self._take_turn(END_STEPS + UTTERANCE_END_STEPS * len(session.active))
                finally:
                    readers = (reader.task for reader in self._readers.values())
                    for task in (*halves, *readers, *self._jobs):
                        task.cancel()
        finally:
            for utterance in session.on_disconnect():
                self._close_speech(utterance)

    async def _read(self) -> None:
        try:
            while True:
                message = await self._socket.receive()
                if delay_s := self._message_delay_s(self._loop.time()):
                    await asyncio.sleep(delay_s)
                await self._take_turn(1)
                self._session.receive(message, self._loop.time())
                self._wake_if_due()
                while self._session.answer_interrupts():
                    await asyncio.sleep(0)
                    self.wake()
                while self._session.backlog > _MAX_BACKLOG or self._session.defers:
                    self._can_receive.clear()
                    await self._can_receive.wait()
                # At least one turn of the event loop, so that messages that wait together do not delay the others.
                await asyncio.sleep(0)
        except SocketClosed:
            return

    async def _write(self) -> None:
        """Performs effects as they become due. One timer serves the whole connection."""
        try:
            while True:
                self._changed.clear()
                self._wake_at(await self._perform_due())
                await self._changed.wait()
        except SocketClosed:
            return
        finally:
            self._wake_at(math.inf)
            # A speech that is still read sets no timer for a writer that has ended.
            self._next_wake_s = -math.inf

    async def _perform_due(self) -> float:
        """Performs the effects that are due; returns when the writer is to look again, without an event."""
        while True:
            await self._take_turn(1)
            if (effect := self._session.next_effect(self._loop.time())) is not None:
                await self._perform(effect)
                self._can_receive.set()
            wake_s = self._session.next_wake_s(now_s := self._loop.time())
            if effect is None or wake_s > now_s + TIMER_SLACK_S:
                return wake_s

    def _wake_at(self, wake_s: float) -> None:
        """Sets the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_wake_s = wake_s
        self._timer = self._loop.call_at(wake_s, self.wake) if wake_s < math.inf else None

    def _wake_if_due(self) -> None:
        """Wakes the writer if something is due now, and at the latest when something will be."""
        wake_s = self._session.next_wake_s(now_s := self._loop.time())
        if wake_s <= now_s + TIMER_SLACK_S:
            self.wake()
        elif wake_s < self._next_wake_s:
            self._wake_at(wake_s)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case SendAudio():
                if effect.message is not None:
                    await self._send(effect.message)
                if (reader := self._readers.get(effect.utterance)) is not None:
                    reader.has_room.set()
            case SendMessage():
                await self._send(effect.message)
            case ReadSpeech():
                has_room = asyncio.Event()
                task = self._tasks.create_task(self._read_speech(effect.utterance, effect.speech, has_room))
                self._readers[effect.utterance] = _Reader(task, has_room)
            case SuspendSpeech():
                self._start_job(self._suspend(effect))
            case RewindSpeech():
                reader = self._readers.pop(effect.utterance, None)
                self._start_job(self._rewind(effect.utterance, effect.speech, None if reader is None else reader.task))
            case LoadDictionaries():
                self._start_job(self._load_dictionaries(effect))
            case CloseSpeech():
                self._close_speech(effect.utterance)
            case SendProbe():
                self._socket.probe(self._on_probe_answered)
            case LoseSocket():
                effect.resumption.lose()
            case CloseSocket():
                await self._socket.close_within(effect.code, effect.reason, effect.timeout_s)
                raise SocketClosed

    def _on_probe_answered(self) -> None:
        self._session.on_probe_answered()
        self.wake()

    async def _send(self, message: str | bytes) -> None:
        self._socket.send(message)
        since_s = self._loop.time()
        # A session that is closing does not wait: its last message explains the close, whether or not it is read.
        while self._socket.blocked and not self._session.gives_up_write:
            try:
                async with asyncio.timeout(_BLOCKED_POLL_S):
                    await self._socket.wait_writable()
            except TimeoutError:
                self._session.on_write_blocked(self._loop.time(), since_s)

    async def _read_speech(self, utterance: ServerUtterance, speech: Speech, has_room: asyncio.Event) -> None:
        try:
            async for chunk in speech:
                await self._take_turn(1)
                first = utterance.outbox.next_samples is None
                self._session.on_audio(utterance, chunk)
                if first:  # without pacing, it is due in any case
                    self.wake()
                else:
                    self._wake_if_due()
                while not utterance.outbox.has_room:
                    has_room.clear()
                    await has_room.wait()
                # The first seconds of an utterance arrive at once: other connections run between its chunks.
                await asyncio.sleep(0)
        except VoxgateError as error:
            self._session.on_failed(utterance, error)
        except Exception:
            log.exception("reading a speech failed", extra={"session": self._session.name, "utterance": utterance.id})
            self._session.on_failed(utterance, GenerationFailed("the speech failed"))
        else:
            self._session.on_finished(utterance)
        self.wake()

    def _start_job(self, job: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _load_dictionaries(self, effect: LoadDictionaries) -> None:
        loaded: tuple[Lexicon, ...] | VoxgateError
        try:
            loaded = await effect.load()
        except VoxgateError as error:
            loaded = error
        except Exception:
            log.exception("loading dictionaries failed", extra={"session": self._session.name})
            loaded = GenerationFailed("the dictionaries could not be loaded")
        self._session.on_dictionaries(loaded, self._loop.time())
        self._can_receive.set()
        self.wake()

    async def _suspend(self, effect: SuspendSpeech) -> None:
        utterance = effect.utterance
        try:
            given_up = await effect.speech.suspend(anywhere=effect.anywhere)
        except Exception:
            log.exception(
                "suspending a speech failed", extra={"session": self._session.name, "utterance": utterance.id}
            )
            self._session.on_failed(utterance, GenerationFailed("the speech failed"))
        else:
            if utterance.speech is effect.speech:
                self._session.on_suspended(utterance, self._loop.time(), given_up=given_up)
        self.wake()

    async def _rewind(self, utterance: ServerUtterance, speech: Speech, reader: asyncio.Task[None] | None) -> None:
        try:
            if reader is not None:
                reader.cancel()
                await asyncio.wait([reader])
            await speech.aclose()
        except Exception:
            log.exception("closing a speech failed", extra={"session": self._session.name, "utterance": utterance.id})
        self._session.on_rewound(utterance, self._loop.time())
        self.wake()

    def _close_speech(self, utterance: ServerUtterance) -> None:
        reader = self._readers.pop(utterance, None)
        self._speech_closer.close(utterance, None if reader is None else reader.task)


class SpeechCloser:
    """Closes speeches in tasks that outlive their connection, and then releases their tickets.

    A ticket is released only when the engine has confirmed the end of the speech, so that its slot is free.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def closing(self) -> int:
        """Speeches whose end the engine has not confirmed."""
        return len(self._closing)

    def close(self, utterance: ServerUtterance, reader: asyncio.Task[None] | None) -> None:
        """Cancels `reader`, closes the utterance's speech, then releases its ticket. Returns at once."""
        # An utterance whose text is taken back may have another ticket before its former speech is closed.
        if utterance.speech is None:
            self._release(utterance.ticket)
            return
        closing = self._close(utterance, utterance.speech, utterance.ticket, reader)
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def finish(self, timeout_s: float) -> None:
        """Waits until all speeches are closed, at most `timeout_s`."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_s)

    async def _close(
        self,
        utterance: ServerUtterance,
        speech: Speech,
        ticket: Ticket | None,
        reader: asyncio.Task[None] | None,
    ) -> None:
        try:
            async with asyncio.timeout(_CLOSE_DEADLINE_S):
                if reader is not None:
                    reader.cancel()
                    await asyncio.wait([reader])
                await speech.aclose()
        except Exception:
            log.exception("closing a speech failed", extra={"utterance": utterance.id})
        finally:
            self._release(ticket)

    def _release(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            self._admission.release(ticket, asyncio.get_running_loop().time())
