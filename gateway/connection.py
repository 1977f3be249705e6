"""One connection: a socket on one side, speeches on the other, a session between them that decides."""

from __future__ import annotations

import asyncio
import logging
import math

from ..pipeline.errors import GenerationFailed, VoxgateError
from .effects import CloseSocket, Effect, Listen, Probe, Retire, SendAudio, SendMessage
from .pacer import TIMER_SLACK_S
from .retirement import Retirement
from .session import Session
from .utterance import Utterance
from .websocket import Socket, SocketClosed

_BACKLOG = 64
"""Effects that may wait for a slow reader before its own messages are left unread."""
_BLOCKED_LOOK_S = 0.5
"""While a write waits for the client, the session is asked this often what to make of it."""

log = logging.getLogger(__name__)


class Connection:
    """Drives one session. `run` returns when the socket is closed; cancelling it gives every utterance up."""

    def __init__(self, socket: Socket, retirement: Retirement) -> None:
        self._socket = socket
        self._retirement = retirement
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._look_s = math.inf
        """When the writer looks at the session again by itself."""
        self._read_on = asyncio.Event()
        self._listening: dict[Utterance, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._tasks: asyncio.TaskGroup
        self._session: Session

    def wake(self) -> None:
        """Look at the session again soon."""
        self._changed.set()

    async def run(self, session: Session) -> None:
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
            for utterance in session.lost():
                self._retire(utterance)

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
            case Listen():
                room = asyncio.Event()
                task = self._tasks.create_task(self._listen(effect.utterance, room))
                self._listening[effect.utterance] = (task, room)
            case Retire():
                self._retire(effect.utterance)
            case Probe():
                self._socket.probe(self._has_read)
            case CloseSocket():
                await self._socket.shut(effect.code, effect.reason, effect.patience_s)
                raise SocketClosed

    def _has_read(self) -> None:
        self._session.has_read()
        self.wake()

    async def _send(self, message: str | bytes) -> None:
        self._socket.send(message)
        since_s = self._loop.time()
        # Once the socket is to be closed, what explains it is sent without waiting for anybody to read it.
        while self._socket.blocked and not self._session.closing:
            try:
                async with asyncio.timeout(_BLOCKED_LOOK_S):
                    await self._socket.drained()
            except TimeoutError:
                self._session.blocked(self._loop.time(), since_s)

    async def _listen(self, utterance: Utterance, room: asyncio.Event) -> None:
        assert utterance.speech is not None
        try:
            async for chunk in utterance.speech:
                self._session.hear(utterance, chunk)
                # Most chunks wait in the outbox for their time; the writer looks again by then.
                if self._session.next_wake_s(self._loop.time()) < self._look_s:
                    self._changed.set()
                while not utterance.outbox.has_room:
                    room.clear()
                    await room.wait()
                # Chunks that are there at once, a new utterance's first seconds, take turns with everybody's.
                await asyncio.sleep(0)
        except VoxgateError as error:
            self._session.broke(utterance, error)
        except Exception:
            log.exception("speech failed", extra={"session": self._session.name, "utterance": utterance.id})
            self._session.broke(utterance, GenerationFailed("the speech failed"))
        else:
            self._session.spoke(utterance)
        self._changed.set()

    def _retire(self, utterance: Utterance) -> None:
        listening, _ = self._listening.pop(utterance, (None, None))
        self._retirement.retire(utterance, listening)
