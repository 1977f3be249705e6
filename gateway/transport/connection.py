"""One connection: a socket on one side, speeches on the other, a session between them that decides."""
# TODO-DOC Closing speeches: outlives their connection, and gives each slot back only when the engine confirmed.

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Protocol

from voxgate.pipeline.errors import GenerationFailed, VoxgateError

from ..session.admission import Admission
from ..session.effects import CloseSocket, CloseSpeech, Effect, ReadSpeech, SendAudio, SendMessage, SendProbe
from ..session.pacer import TIMER_SLACK_S
from ..session.session import ServerSession
from ..session.utterance import ServerUtterance

_BACKLOG = 64
"""Effects that may wait for a slow reader before its own messages are left unread."""
_BLOCKED_LOOK_S = 0.5
"""While a write waits for the client, the session is asked this often what to make of it."""

log = logging.getLogger(__name__)


class Connection:
    """Drives one session. `run` returns when the socket is closed; cancelling it gives every utterance up."""

    def __init__(self, socket: Socket, speech_closer: SpeechCloser) -> None:
        self._socket = socket
        self._speech_closer = speech_closer
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._look_s = math.inf
        """When the writer looks at the session again by itself."""
        self._read_on = asyncio.Event()
        self._listening: dict[ServerUtterance, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._tasks: asyncio.TaskGroup
        self._session: ServerSession

    def wake(self) -> None:
        """Look at the session again soon."""
        self._changed.set()

    async def run(self, session: ServerSession) -> None:
        self._session = session
        session.open()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                writer = self._tasks.create_task(self._write())
                try:
                    await self._read()
                finally:
                    writer.cancel()
                    for listening, _ in self._listening.values():
                        listening.cancel()
        finally:
            for utterance in session.on_disconnect():
                self._close_speech(utterance)

    async def _read(self) -> None:
        try:
            while True:
                message = await self._socket.receive()
                self._session.receive(message, self._loop.time())
                self._changed.set()
                while self._session.backlog > _BACKLOG:
                    self._read_on.clear()
                    await self._read_on.wait()
        except SocketClosed:
            return

    async def _write(self) -> None:
        """One timer for the whole connection: the session says when it is next due."""
        try:
            while True:
                self._changed.clear()
                while (look_s := self._session.next_wake_s(now_s := self._loop.time())) <= now_s + TIMER_SLACK_S:
                    if (effect := self._session.next_effect(now_s)) is None:
                        break
                    await self._do(effect)
                    self._read_on.set()
                self._look_s = look_s
                timer = self._loop.call_at(self._look_s, self.wake) if self._look_s < math.inf else None
                try:
                    await self._changed.wait()
                finally:
                    if timer is not None:
                        timer.cancel()
        except SocketClosed:
            return

    async def _do(self, effect: Effect) -> None:
        match effect:
            case SendAudio():
                if effect.message is not None:
                    await self._send(effect.message)
                if (listening := self._listening.get(effect.utterance)) is not None:
                    listening[1].set()
            case SendMessage():
                await self._send(effect.message)
            case ReadSpeech():
                room = asyncio.Event()
                task = self._tasks.create_task(self._listen(effect.utterance, room))
                self._listening[effect.utterance] = (task, room)
            case CloseSpeech():
                self._close_speech(effect.utterance)
            case SendProbe():
                self._socket.probe(self._on_probe_answered)
            case CloseSocket():
                await self._socket.close_within(effect.code, effect.reason, effect.timeout_s)
                raise SocketClosed

    def _on_probe_answered(self) -> None:
        self._session.on_probe_answered()
        self.wake()

    async def _send(self, message: str | bytes) -> None:
        self._socket.send(message)
        since_s = self._loop.time()
        # Once the socket is to be closed, what explains it is sent without waiting for anybody to read it.
        while self._socket.blocked and not self._session.closing:
            try:
                async with asyncio.timeout(_BLOCKED_LOOK_S):
                    await self._socket.wait_writable()
            except TimeoutError:
                self._session.blocked(self._loop.time(), since_s)

    async def _listen(self, utterance: ServerUtterance, room: asyncio.Event) -> None:
        assert utterance.speech is not None
        try:
            async for chunk in utterance.speech:
                self._session.on_audio(utterance, chunk)
                # Most chunks wait in the outbox for their time; the writer looks again by then.
                if self._session.next_wake_s(self._loop.time()) < self._look_s:
                    self._changed.set()
                while not utterance.outbox.has_room:
                    room.clear()
                    await room.wait()
                # Chunks that are there at once, a new utterance's first seconds, take turns with everybody's.
                await asyncio.sleep(0)
        except VoxgateError as error:
            self._session.on_failed(utterance, error)
        except Exception:
            log.exception("speech failed", extra={"session": self._session.name, "utterance": utterance.id})
            self._session.on_failed(utterance, GenerationFailed("the speech failed"))
        else:
            self._session.on_finished(utterance)
        self._changed.set()

    def _close_speech(self, utterance: ServerUtterance) -> None:
        listening, _ = self._listening.pop(utterance, (None, None))
        self._speech_closer.close(utterance, listening)


class SpeechCloser:
    """Holds the tasks that close speeches. No connection's cancellation reaches them."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def closing(self) -> int:
        return len(self._closing)

    def close(self, utterance: ServerUtterance, listening: asyncio.Task[None] | None) -> None:
        """Stop `listening`, close the utterance's speech, then give its ticket back. Returns at once."""
        if utterance.speech is None:
            self._leave(utterance)
            return
        task = asyncio.get_running_loop().create_task(self._close(utterance, listening))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def finish(self, deadline_s: float) -> None:
        """Wait until all are closed, `deadline_s` seconds at most."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=deadline_s)

    async def _close(self, utterance: ServerUtterance, listening: asyncio.Task[None] | None) -> None:
        assert utterance.speech is not None
        try:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])
            await utterance.speech.aclose()
        except Exception:
            log.exception("closing a speech failed", extra={"utterance": utterance.id})
        finally:
            self._leave(utterance)

    def _leave(self, utterance: ServerUtterance) -> None:
        if utterance.ticket is not None:
            self._admission.release(utterance.ticket, asyncio.get_running_loop().time())


class Socket(Protocol):
    """What a connection needs of a socket."""

    @property
    def close_code(self) -> int | None:
        """What it was closed with; None while it is open."""

    async def receive(self) -> str | bytes:
        """The next message. Raises SocketClosed. Cancelling it loses nothing."""

    def send(self, message: str | bytes) -> None:
        """Hand a message to the network without waiting. Raises SocketClosed."""

    @property
    def blocked(self) -> bool:
        """More is in the write buffer than should be: wait with `drained` before sending on."""

    async def wait_writable(self) -> None:
        """Wait until the write buffer is nearly empty, or the socket closed. Cancelling it loses nothing."""

    def probe(self, on_read: Callable[[], None]) -> None:
        """Have `on_read` called once the client has read all that was sent so far. Raises SocketClosed."""

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:
        """Close with `code`; returns at the latest after `patience_s`, then the connection is cut."""


class SocketClosed(Exception):
    """The socket is closed, by either side or by the network; nothing more comes or goes."""
