"""The world of one run: a whole gateway with the tone synthesizer, its clients, and what has happened to them.

- Clients: `listener`, which may lose its connection, and `requests` keep the rules and are owed their speech.
  `peers` do anything.
- Network: loopback TCP, cut, reset, stalled or slow. Peers come from addresses and with keys of their own.
- Engine: a tone synthesizer that can be lost, fail, hang back and shrink.
- Operator: reloads, drains, probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path

from fakes.certificates import self_signed
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.settings import Settings
from voxgate.gateway.transport.websocket import LOST, BoundedConnection

from ..testbed.expected_audio import ReceivedUtterance
from ..testbed.raw_websocket import upgrade_request
from .crowd import Crowd, Insistent
from .fairness import SlotWitness, Witness
from .fairness_of_places import ConnectionWitness, SocketWitness
from .hostile_input import LISTENER_KEY, PEER_KEY, ROTATED_KEY
from .lossy_listener import LossyListener
from .peers import HOST, Listener, Peer, Probe, Request, connect
from .program import Program

PEER_ADDRESSES = ("127.0.0.2", "127.0.0.3")
FOCUS = 0.85
"""Share of the steps that concern the same peer as the one before: misfortunes have to meet."""
MAX_PEERS = 24
PROBE_RESERVE = 6
"""As `gateway.transport.connection_pool.PROBE_RESERVE`, but less than there are peers."""


@dataclass(frozen=True)
class Files:
    """Key files and certificates that operators put in place; made once for many runs."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Files:
        listener, peer, rotated = (f"hash = '{hash_key(key)}'" for key in (LISTENER_KEY, PEER_KEY, ROTATED_KEY))
        (folder / "first.toml").write_text(f"[keys.listener]\n{listener}\n[keys.peer]\n{peer}\n")
        (folder / "rotated.toml").write_text(f"[keys.listener]\n{listener}\n[keys.peer]\n{rotated}\n")
        (folder / "removed.toml").write_text(f"[keys.listener]\n{listener}\n")
        (folder / "broken.toml").write_text("[keys.listener\n")
        for name in ("first", "second"):
            self_signed(folder, name)
        (folder / "broken.pem").write_text("no certificate")
        return cls(folder)

    @property
    def keys(self) -> Path:
        return self.folder / "keys.toml"

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    def put_keys(self, name: str) -> None:
        """Puts a key file in place."""
        shutil.copyfile(self.folder / f"{name}.toml", self.keys)

    def put_certificate(self, name: str) -> None:
        """Puts a certificate in place; its key follows it in the same file."""
        parts = [(self.folder / f"{name}{end}") for end in (".pem", ".key")]
        self.certificate.write_text("".join(part.read_text() for part in parts if part.exists()))


class LogRecords(logging.Handler):
    """Keeps complaints: records from ERROR on, and those with a traceback. Formats every record."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.ERROR or record.exc_info:
            error = record.exc_info[1] if record.exc_info else None
            self.complaints.append(text if error is None else f"{text}: {error!r}{_origin(error)}")


def _origin(error: BaseException) -> str:
    """The place that raised an exception, the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return "" if code is None else f" ({error!r} in {code.co_qualname})"


class World:
    """A gateway at work. `open` starts it, `close` ends it."""

    def __init__(self, program: Program, files: Files) -> None:
        self.setup = setup = program.setup
        self.files = files
        self.chance = random.Random(program.seed)
        self.loop = asyncio.get_running_loop()
        self.log = LogRecords()
        self.happened: set[str] = set()
        """What steps did that excuses refusals, failures and complaints."""
        self.script = ToneScript(
            frame_s=setup.frame_s, chunk_frames=setup.chunk_frames, close_s=setup.close_s, start_s=setup.start_s
        )
        self.synthesizer = ToneSynthesizer(self.script, slots=setup.slots)
        settings = Settings(
            host=HOST,
            port=0,
            haproxy_agent_port=0,
            admin_port=0 if setup.admin else None,
            sockets=setup.sockets,
            queue_length=setup.queue_length,
            queue_wait_ms=setup.queue_wait_ms,
            messages_per_s=setup.messages_per_s,
            text_idle_timeout_s=setup.text_idle_timeout_s,
            slow_consumer_timeout_ms=setup.slow_consumer_timeout_ms,
            shutdown_grace_s=setup.shutdown_grace_s,
            keys_file=files.keys if setup.keys else None,
            tls_certificate=files.certificate if setup.tls else None,
        )
        if setup.keys:
            files.put_keys("first")
        if setup.tls:
            files.put_certificate("first")
        self.gateway = Gateway(settings, self.synthesizer, PacketEncoder)
        self.witnesses = self._watch(settings)
        self.peers: list[Peer] = []
        self.listener: LossyListener
        self.loss: asyncio.Task[None] | None = None
        """While it is not done, the listener has no connection."""
        self.requests: list[Request] = []
        self.probes: list[Probe] = []
        self.crowd: Crowd | None = None
        self.insistent: list[Insistent] = []
        self.utterances: list[ReceivedUtterance] = []
        """What the listeners asked for."""
        self.disturbed: set[ReceivedUtterance] = set()
        """Those whose listener had no connection for a while, or held them: their audio may come late."""
        self.held: set[ReceivedUtterance] = set()
        """Those that were held: others may have got their slots."""
        self.drain: asyncio.Task[None] | None = None
        self._engine: asyncio.Task[None] | None = None
        self._numbers = itertools.count()
        self._connecting = asyncio.Lock()
        self._focused: Peer | None = None

    def _watch(self, settings: Settings) -> tuple[Witness, ...]:
        """Those that judge what each caller gets."""
        share, listener = settings.caller_share, self.gateway._listener
        connections = self.setup.connections_per_socket * settings.sockets
        return (
            SlotWitness(
                self.gateway._admission,
                listener.sessions,
                self._reads,
                self._absent_s,
                share,
                settings.queue_length,
                settings.queue_wait_ms / 1000,
            ),
            SocketWitness(listener.sessions, share, settings.sockets),
            ConnectionWitness(listener._pool, share, connections, PROBE_RESERVE),
        )

    def _reads(self, session: ServerSession) -> bool:
        """Whether the session has a connection whose client reads what it is sent."""
        server = self.gateway._listener._server
        connections = [] if server is None else [each for each in server.connections if not each.paused]
        slots = [each.slot for each in connections if isinstance(each, BoundedConnection)]
        return any(slot is not None and slot.session is session for slot in slots)

    def _absent_s(self, session: ServerSession) -> float:
        """For how long the session has had no connection."""
        resumable, _ = self.gateway._listener.sessions._resumable.get(session.name, (None, None))
        if resumable is None or resumable._socket is not None:
            return 0.0
        return self.loop.time() - resumable._since_s

    async def open(self) -> None:
        """Starts the gateway, waits for its engine, and connects the first listener."""
        await self.gateway.open()
        assert self.gateway._lag_task is not None
        self.gateway._lag_task.cancel()  # four wakeups a second that say nothing in virtual time
        self._engine = self.loop.create_task(self.gateway.run_engine())
        await asyncio.sleep(self.setup.start_s + 1)
        self.listener = await self._connect_lossy()

    async def close(self) -> None:
        """Ends the gateway."""
        if self.drain is not None:
            await self.drain
        if self._engine is not None:
            self._engine.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._engine
        await self.gateway.close()

    # Clients

    async def connect_listener(self, headers: tuple[str, ...] | None = None, address: str = HOST) -> Listener:
        """A listener whose handshake was answered; `headers` hold its key, by default that of the listeners.

        Raises OSError when the gateway does not listen any more.
        """
        listener = Listener(upgrade_request(HOST, headers=self.listener_headers if headers is None else headers))
        await self._connect(listener, address)
        await asyncio.wait([listener.answered])
        return listener

    async def _connect(self, listener: Listener, address: str = HOST) -> None:
        """Raises OSError when the gateway does not listen any more."""
        await connect(listener, self.gateway.port, address=address, tls=self.tls, tcp=self.setup.tcp)

    async def _connect_lossy(self) -> LossyListener:
        """As `connect_listener`, with a listener that can lose its connection."""
        listener = LossyListener(self.listener_headers, self.disturbed)
        await self._connect(listener)
        await asyncio.wait([listener.answered])
        return listener

    def lose_listener(self, silent_s: float, pause_s: float) -> bool:
        """Has the listener lose its connection (see `LossyListener.lose`); returns whether it had one."""
        listener = self.listener
        if listener.closed.done() or (self.loss is not None and not self.loss.done()):
            return False
        self.loss = self.loop.create_task(listener.lose(silent_s, pause_s, lambda: self._connect(listener)))
        return True

    async def present_listener(self) -> LossyListener | None:
        """The listener, connected again where its socket was closed to make room for another caller's.

        None while it is refused, and for good while the gateway drains.
        """
        async with self._connecting:
            if self.listener.closed.done():
                try:
                    listener = await self._connect_lossy()
                except OSError:
                    if "drain" not in self.happened:
                        raise
                    return None
                if listener.answered.result() != 101:
                    listener.abort()
                    return None
                self.listener = listener
            return self.listener

    @property
    def open_sockets(self) -> int:
        """Connections of the gateway whose handshake has begun, and whose end it has not noticed."""
        server = self.gateway._listener._server
        return 0 if server is None else sum(each.transport is not LOST for each in server.connections)

    @property
    def listener_headers(self) -> tuple[str, ...]:
        return (f"Authorization: Bearer {LISTENER_KEY}",) if self.setup.keys else ()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What clients need for TLS; None where the gateway has none."""
        return _client_tls() if self.setup.tls else None

    def say(self, listener: Listener, text: str) -> ReceivedUtterance:
        """Has a listener ask for speech that it is owed."""
        received = listener.say(text, name=f"l{next(self._numbers)}")
        self.utterances.append(received)
        return received

    async def add_peer(
        self, peer: Peer, chance: random.Random, port: int | None = None, *, plain: bool = False
    ) -> bool:
        """Connects a peer; returns whether that was possible."""
        if sum(each.open for each in self.peers) >= MAX_PEERS:
            return False
        tls = None if plain or port is not None else self.tls
        address = chance.choice(PEER_ADDRESSES)
        try:
            async with asyncio.timeout(1):
                await connect(peer, port or self.gateway.port, address=address, tls=tls, tcp=self.setup.tcp)
        except (OSError, TimeoutError):  # the gateway does not listen any more, or another peer fills it
            return False
        self.peers.append(peer)
        self._focused = peer
        return True

    def pick(self, chance: random.Random, protocol: str | None = None) -> Peer | None:
        """A connected peer, of that protocol if one is named, mostly the one that was picked last."""
        focused = self._focused
        if chance.random() < FOCUS and focused is not None and focused.open and protocol in (None, focused.protocol):
            return focused
        found = [peer for peer in self.peers if peer.open and protocol in (None, peer.protocol)]
        self._focused = chance.choice(found) if found else focused
        return self._focused if found else None


def _client_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
