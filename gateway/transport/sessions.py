"""The open sessions of a gateway: takes them in, counts them, and sees them off when it shuts down."""
# TODO-DOC A socket's slot: taken before its handshake is answered, so that no two can take the last one, given back
# TODO-DOC once.

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterator

from voxgate.pipeline.errors import AtCapacity, VoxgateError

from ..access.usage import Caller, SharedUsage
from ..errors import Draining
from ..observability.events import Observer
from ..session.admission import Admission
from ..session.protocol import WireProtocol
from ..session.session import ServerSession
from ..session.utterance_factory import UtteranceFactory
from .connection import Connection, Socket, SpeechCloser

_FULL_RETRY_MS = 2000
_DRAINING_RETRY_MS = 1000
_IDLE_CLOSE_SPREAD_S = 0.5
"""Idle sockets close within this time, not all at once: their clients come back somewhere else."""
_LAST_S = 2.0
"""What is left after the drain's deadline gets so long to end properly."""

log = logging.getLogger(__name__)


class Sessions:
    """At most `factory.settings.sockets` at once, over WebSockets and plain HTTP alike.

    With a `shared_usage`, those of all processes that share it count.
    """

    def __init__(
        self,
        factory: UtteranceFactory,
        admission: Admission,
        speech_closer: SpeechCloser,
        observer: Observer,
        shared_usage: SharedUsage | None = None,
    ) -> None:
        self._factory = factory
        self._admission = admission
        self._speech_closer = speech_closer
        self._observer = observer
        self._shared_usage = shared_usage
        self._open: set[ServerSession] = set()
        self._taken = 0
        """Places of this process's sockets, those in their handshake included."""
        self._drained_s: float | None = None
        """Draining: its deadline."""
        self._empty = asyncio.Event()
        self._run_id = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def total_open(self) -> int:
        """Sockets of this gateway, those of its other processes included."""
        return self._taken if self._shared_usage is None else self._shared_usage.open_sockets

    def __iter__(self) -> Iterator[ServerSession]:
        return iter(tuple(self._open))

    @property
    def draining(self) -> bool:
        """Nothing new is taken."""
        return self._drained_s is not None

    def check_capacity(self) -> None:
        """Raises Draining, AtCapacity."""
        self._check_open()
        if self.total_open >= self._factory.settings.sockets:
            raise _full()

    def reserve_slot(self, caller: Caller) -> ConnectionSlot:
        """For a socket that `run` is to serve; given back when that ends, or before. Raises what refuses it:
        KeyLimit, Draining, AtCapacity."""
        now_s, limit = asyncio.get_running_loop().time, self._factory.settings.sockets
        caller.acquire_socket(now_s())
        try:
            self._check_open()
            if not (self._taken < limit if self._shared_usage is None else self._shared_usage.acquire_socket(limit)):
                raise _full()
        except VoxgateError:
            caller.release_socket(now_s())
            raise
        self._taken += 1

        def returned() -> None:
            self._taken -= 1
            if self._shared_usage is not None:
                self._shared_usage.release_socket()
            caller.release_socket(now_s())

        return ConnectionSlot(caller, returned)

    def _check_open(self) -> None:
        if self.draining:
            raise Draining("the gateway is shutting down", retry_after_ms=_DRAINING_RETRY_MS)

    async def run(self, socket: Socket, slot: ConnectionSlot, protocol: WireProtocol) -> None:
        """Serve one socket until it is closed; cancelling it gives every utterance up."""
        caller = slot.caller
        name = f"{self._run_id}-{next(self._numbers)}"
        connection = Connection(socket, self._speech_closer)
        session = ServerSession(name, caller, self._factory, self._admission, protocol, connection.wake, self._observer)
        self._open.add(session)
        self._observer.session_opened(protocol.name, caller.key)
        if self.draining:  # its handshake was under way when the drain began
            self._tell_drain(session)
        log.info("session opened", extra={"session": name, "key": caller.name})
        try:
            await connection.run(session)
        finally:
            slot.release()
            self._open.discard(session)
            if not self._open:
                self._empty.set()
            log.info("session closed", extra={"session": name, "code": socket.close_code})

    def stop_accepting(self) -> None:
        """Take nothing new."""
        if self._drained_s is None:
            self._drained_s = asyncio.get_running_loop().time()

    async def drain(self, deadline_s: float) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        log.info("draining %d sockets", len(self._open))
        self._drained_s = asyncio.get_running_loop().time() + deadline_s
        for session in self:
            self._tell_drain(session)
        if not await self._emptied(deadline_s):
            for session in self:
                session.abort()
            await self._emptied(_LAST_S)

    def _tell_drain(self, session: ServerSession) -> None:
        assert self._drained_s is not None
        now_s = asyncio.get_running_loop().time()
        left_s = max(0.0, self._drained_s - now_s)
        idle_close_s = now_s + random.uniform(0, min(_IDLE_CLOSE_SPREAD_S, left_s))
        session.drain(round(left_s * 1000), idle_close_s)

    async def _emptied(self, timeout_s: float) -> bool:
        if self._open:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._empty.wait()
        return not self._open


def _full() -> AtCapacity:
    return AtCapacity("every socket is taken", retry_after_ms=_FULL_RETRY_MS)


class ConnectionSlot:
    """One of the gateway's sockets, and one of its caller's; `returned` takes both back."""

    def __init__(self, caller: Caller, returned: Callable[[], None]) -> None:
        self.caller = caller
        self._returned: Callable[[], None] | None = returned

    def release(self) -> None:
        """The socket is closed, or was never opened. Safe to call twice."""
        returned, self._returned = self._returned, None
        if returned is not None:
            returned()
