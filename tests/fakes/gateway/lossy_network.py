"""A gateway's sessions and the Python client over connections that are lost and hang, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from fakes.gateway.packet_encoder import FakeEncoder
from voxgate.client.errors import SessionLost, Unreachable
from voxgate.client.session import Session, begin_session
from voxgate.client.session_link import SessionLink
from voxgate.client.wire import NEW_SESSION, Connector
from voxgate.gateway.access.caller import Caller, Grant
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.access.rights import Right
from voxgate.gateway.errors import ResumeFailed
from voxgate.gateway.messages.server import ErrorMessage
from voxgate.gateway.observability.events import Observer
from voxgate.gateway.protocols.native import NativeProtocol, find_resume
from voxgate.gateway.session.admission import AdmissionQueue
from voxgate.gateway.session.checkpoints.trail import Checkpoints
from voxgate.gateway.session.outbox import EncoderFactory
from voxgate.gateway.session.utterance_factory import UtteranceFactory
from voxgate.gateway.settings import Settings
from voxgate.gateway.transport.connection import SocketClosed, SpeechCloser
from voxgate.gateway.transport.sessions import Sessions

MESSAGES_IN_BUFFERS = 40
"""Messages that buffers of the network accept while nothing is read; then writes block."""


def _key(key_hash: str | None) -> bytes:
    """What authenticates checkpoints, the same in all gateways."""
    return f"key {key_hash}".encode()


ABNORMAL = 1006
"""Code of an end without a close (RFC 6455, section 7.4.1)."""


class LossyConnection:
    """One connection; `client` and `gateway` are its ends.

    `cut` loses what is under way, in both directions; each end learns of it later, or never.
    """

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.cut_off = False
        self.client, self.gateway = ClientEnd(self), GatewayEnd(self)

    def cut(self, client_learns_s: float | None, gateway_learns_s: float | None) -> None:
        """Loses the connection; an end learns of it after that time, with None only when it gives up."""
        self.cut_off = True
        loop = asyncio.get_running_loop()
        for end, learns_s in ((self.client, client_learns_s), (self.gateway, gateway_learns_s)):
            if learns_s is not None:
                loop.call_later(learns_s, end.lose)


class _End:
    """What both ends have: messages that have arrived, and whether the connection is lost or closed."""

    def __init__(self, connection: LossyConnection) -> None:
        self.connection = connection
        self.lost = False
        self.close_code: int | None = None
        """Code of a close; None while the connection is open."""
        self._arrived: deque[str | bytes] = deque()
        self._changed = asyncio.Event()
        self._unread = 0
        """Messages sent and not delivered."""

    def lose(self) -> None:
        """The end learns that the connection is lost."""
        self.lost = True
        self.close_code = self.close_code or ABNORMAL
        self._changed.set()

    def deliver(self, other: _End, message: str | bytes) -> None:
        """Sends `message` to the other end."""
        self._unread += 1

        def arrive() -> None:
            if not self.connection.cut_off and not other.lost:
                self._unread -= 1
                other._arrived.append(message)
                other._changed.set()

        asyncio.get_running_loop().call_later(self.connection.latency_s, self._in_order(arrive))

    def _in_order(self, arrive: Callable[[], None]) -> Callable[[], None]:
        """Delivers the oldest message under way, whichever timer fires: timers of a disorderly loop change places."""
        self._under_way = getattr(self, "_under_way", deque[Callable[[], None]]())
        self._under_way.append(arrive)
        return lambda: self._under_way.popleft()()

    async def next(self) -> str | bytes | None:
        """Returns the next message; None once the connection is lost or closed."""
        while not self._arrived:
            if self.lost or self.close_code is not None:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._arrived.popleft()


class ClientEnd(_End):
    """A `client.wire.Wire`."""

    async def send(self, text: str) -> None:
        if self.lost or self.close_code is not None:
            raise self._error()
        self.deliver(self.connection.gateway, text)

    async def receive(self) -> str | bytes:
        if (message := await self.next()) is None:
            raise self._error()
        return message

    def _error(self) -> SessionLost:
        return SessionLost(self.close_code, "", broken=self.close_code in (None, ABNORMAL))

    def abort(self) -> None:
        self.lose()
        if not self.connection.cut_off:
            self.connection.cut(None, self.connection.latency_s)

    async def close(self, code: int = 1000, reason: str = "") -> None:  # noqa: ARG002 - the interface's signature
        if not self.connection.cut_off and not self.lost:
            await asyncio.sleep(self.connection.latency_s + 0.05)
            self.connection.gateway.close_code = code
            self.connection.gateway.lose()
        self.lose()


class GatewayEnd(_End):
    """A `gateway.transport.resumption.LosableSocket`."""

    @property
    def broken(self) -> bool:
        return self.close_code in (None, ABNORMAL)

    def hand_over_slot(self) -> None:
        """The session has the slot already."""

    def abort(self) -> None:
        self.lose()
        if not self.connection.cut_off:
            self.connection.cut(self.connection.latency_s, None)

    async def receive(self) -> str | bytes:
        if (message := await self.next()) is None:
            raise SocketClosed
        return message

    def send(self, message: str | bytes) -> None:
        if self.lost:
            raise SocketClosed
        self.deliver(self.connection.client, message)

    @property
    def blocked(self) -> bool:
        return self._unread > MESSAGES_IN_BUFFERS and not self.lost

    async def wait_writable(self) -> None:
        while self.blocked:
            await asyncio.sleep(0.02)
        if self.lost:
            raise SocketClosed

    def probe(self, on_read: Callable[[], None]) -> None:
        def answer() -> None:
            if not self.connection.cut_off:
                on_read()

        asyncio.get_running_loop().call_later(2 * self.connection.latency_s, answer)

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:  # noqa: ARG002 - as above
        self.close_code = code
        if not self.connection.cut_off:
            client = self.connection.client
            await asyncio.sleep(self.connection.latency_s + 0.01)
            client.close_code = code
            client._changed.set()
        self.lose()


class LossyNetwork:
    """A gateway of which clients are connected by `LossyConnection`s. `reachable` says whether new ones succeed."""

    def __init__(
        self,
        synthesizer: object,
        observer: Observer | None = None,
        *,
        checkpoints: bool = False,
        encoder: EncoderFactory = FakeEncoder,
        **options: object,
    ) -> None:
        self.settings = Settings(**options)  # type: ignore[arg-type]  # names are checked by the model
        self.synthesizer = synthesizer
        self.observer = observer or Observer()
        self.reachable = True
        self._checkpoints, self._encoder = checkpoints, encoder
        self.connections: list[LossyConnection] = []
        self._callers: dict[str, Caller] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> LossyNetwork:
        synthesizer = self.synthesizer
        await synthesizer.start()  # type: ignore[attr-defined]  # either of the synthesizers without a model
        settings = self.settings
        self.admission = AdmissionQueue(
            lambda: synthesizer.slots,  # type: ignore[attr-defined]  # as above
            settings.queue_length,
            settings.queue_wait_ms,
            caller_share=settings.caller_share,
        )
        self.closer = SpeechCloser(self.admission)
        factory = UtteranceFactory(settings, synthesizer, self._encoder)  # type: ignore[arg-type]  # as above
        if self._checkpoints:
            made = Checkpoints(_key, synthesizer.identity, clock=asyncio.get_running_loop().time)  # type: ignore[attr-defined]  # as above
            factory = replace(factory, checkpoints=made)
        self.factory = factory
        self.sessions = Sessions(factory, self.admission, self.closer, self.observer)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sessions.stop_accepting()
        self.sessions.stop_waiting()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.closer.finish(60)
        assert (len(self.sessions), self.sessions.total_open) == (0, 0)
        assert (self.admission.active, self.admission.queued, self.closer.closing) == (0, 0, 0)
        assert not self.synthesizer.open_speeches  # type: ignore[attr-defined]  # as above

    def open(self, grant: Grant, resume: str, latency_s: float) -> LossyConnection:
        """A connection, at the gateway's end of which the session `resume` goes on, or a new one begins."""
        connection = LossyConnection(latency_s)
        self.connections.append(connection)
        serving = self._begin(connection, grant) if resume == "new" else self._resume(connection, grant, resume)
        task = asyncio.get_running_loop().create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return connection

    async def _begin(self, connection: LossyConnection, grant: Grant) -> None:
        model = self.synthesizer.identity if self._checkpoints else None  # type: ignore[attr-defined]  # as above
        protocol = NativeProtocol(extended=True, resumable=self.settings.resume_s > 0, model=model)
        slot = self.sessions.reserve_slot(grant)
        await self.sessions.run(connection.gateway, slot, protocol)

    async def _resume(self, connection: LossyConnection, grant: Grant, session: str) -> None:
        with contextlib.suppress(SocketClosed):
            message = await connection.gateway.receive()
            resume = find_resume(str(message))
            assert resume is not None
            try:
                resumable = self.sessions.resume(session, resume, grant, connection.gateway)
            except ResumeFailed as error:
                connection.gateway.send(ErrorMessage.of(error).encode())
                await connection.gateway.close_within(1008, error.code, 1)
            else:
                await resumable.serve(connection.gateway)

    def grant(self, name: str = "peer", key_hash: str | None = None) -> Grant:
        """What a client may do; one object for each caller, as the gateway has."""
        caller = self._callers.setdefault(name, Caller(name, KeyLimits()))
        return Grant(caller, frozenset(Right), key_hash)

    def client(self, name: str = "peer", *, latency_s: float = 0.01) -> AbstractAsyncContextManager[Session]:
        """The Python client's session over the network."""
        grant = self.grant(name)

        async def open_wire(session: str, timeout_s: float) -> ClientEnd:
            if not self.reachable:
                await asyncio.sleep(min(timeout_s, 0.2))
                raise Unreachable("the network is down")
            return self.open(grant, session, latency_s).client

        return client_session(open_wire)


@asynccontextmanager
async def client_session(open_wire: Callable[[str, float], Awaitable[ClientEnd]]) -> AsyncIterator[Session]:
    """The Python client's session over connections from `open_wire`."""
    link = SessionLink(await open_wire(NEW_SESSION, 10), open_wire, None)
    session = Session(link, await begin_session(link, Connector("ws://unused"), 10))
    reader = asyncio.create_task(session._read())
    try:
        yield session
    finally:
        await link.flush()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        await link.close()
