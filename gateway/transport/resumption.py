"""Sessions that outlive their connection: the gateway's side of docs/protocol.md, "A lost connection".

Both sides count the messages that they receive, and keep those that they sent until the other side has confirmed them.
When a connection is lost without a close, a `ResumableSocket` waits for another one: the client says how many messages
it has received, the gateway answers with its own count, and each sends again what the other lacks. The session above it
sees one socket whose writes were blocked for a while.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from voxgate.pipeline.errors import BadMessage

from ..errors import ResumeFailed
from ..messages.resumption import ReceivedMessage, Resume, ResumedMessage, ResumeOffer
from ..observability.events import DETACHED, EXPIRED, RESUMED, Observer
from .connection import Socket, SocketClosed
from .turn_budget import TurnBudget

UNCONFIRMED_BYTES = 262_144
"""Bytes sent and not confirmed above which writes are blocked: more than a second of any paced format."""
UNCONFIRMED_TEXT_BYTES = 65_536
"""Of these, bytes of text: audio takes a talker slot, but any of thousands of sockets can have its pings answered."""
MESSAGE_OVERHEAD_BYTES = 64
"""What a kept message counts besides its payload."""
CONFIRM_MESSAGES = 64
"""Messages of the client after which they are confirmed, so that the client keeps few."""
CONTESTED_S = 2.0
"""Seconds that a session without a connection keeps talker slots for which others wait."""
POLL_S = 0.25
"""Interval at which a session without a connection looks whether others wait."""
HEARD_MESSAGES = 16
"""Messages with audio, 0.3 to 1.3 s of it, that a client has to receive before it may be away as long as at first."""
TOKEN_BYTES = 24

log = logging.getLogger(__name__)


@runtime_checkable
class LosableSocket(Socket, Protocol):
    """The socket of one connection."""

    @property
    def broken(self) -> bool:
        """Whether the connection was lost without the close of either side."""

    def abort(self) -> None:
        """Cuts the connection."""

    def hand_over_slot(self) -> None:
        """Leaves the slot of the socket to the session."""


class Watcher(Protocol):
    """Learns when a `ResumableSocket` has lost its connection, and when it has another one."""

    def on_detached(self) -> None: ...

    def on_attached(self) -> None: ...


class ResumableSocket:
    """A `connection.Socket` that outlives its connections, for `within_s` after each loss.

    `contested` returns whether others wait for what the session holds; it then waits for `CONTESTED_S` only. A token
    can be used until the client has shown, by a message on the new connection, that it has got the next one.
    """

    def __init__(
        self,
        name: str,
        socket: LosableSocket,
        within_s: float,
        contested: Callable[[], bool],
        observer: Observer,
        steps: TurnBudget,
        caller: str,
    ) -> None:
        """`steps`: of all sessions in a turn of the event loop; `caller`: whose turn it is."""
        self.name = name
        self.watcher: Watcher
        self.ended = False
        """Whether the session has ended, so that nothing can resume it."""
        self._within_s, self._contested, self._observer = within_s, contested, observer
        self._steps, self._caller = steps, caller
        self._loop = asyncio.get_running_loop()
        self._socket: LosableSocket | None = socket
        self._close_code: int | None = None
        self._since_s = 0.0
        """When the present connection began, or the last one was lost."""
        self._away_s = 0.0
        """Time before that in which the client has heard nothing: without a connection, or on one that was no use."""
        self._heard = 0
        """Messages with audio that it has received since then."""
        self._useful = True
        """Whether it has received enough on the present connection."""
        self._looks = 0
        """Looks in a row at which others waited for what the session holds."""
        self._timer: asyncio.Handle | None = None
        """Calls `_check_patience` while there is no connection."""
        self._kept: deque[str | bytes] = deque()
        """The messages after the first `_confirmed` ones, of which `_written` went to the present connection."""
        self._kept_bytes = self._kept_text_bytes = 0
        self._confirmed = self._written = self._sent = 0
        self._received = self._received_confirmed = 0
        self._tokens = [self._new_token()]
        """The newest token, and before it the one that the client used last."""
        self._changed = asyncio.Event()
        """Set, and replaced, when anything changes for which a coroutine waits."""
        socket.hand_over_slot()

    # What the session's protocol needs

    @property
    def offer(self) -> ResumeOffer:
        """What the client needs in order to resume."""
        return ResumeOffer(
            token=self._tokens[-1], within_ms=round(1000 * self._within_s), unconfirmed_bytes=UNCONFIRMED_BYTES
        )

    def confirm(self, messages: int) -> None:
        """Drops messages that the client has received. Raises BadMessage for more than were sent."""
        if messages > self._written:
            raise BadMessage(f"received must be at most {self._written} messages, got {messages}", param="messages")
        self._drop_until(messages)
        self._notify()

    def _drop_until(self, messages: int) -> None:
        while self._confirmed < messages:
            message = self._kept.popleft()
            self._count_kept(message, -1)
            self._heard += isinstance(message, bytes)
            self._confirmed += 1
        if self._heard >= HEARD_MESSAGES or not self._kept:
            self._away_s, self._heard, self._useful = 0.0, 0, True

    def lose(self) -> None:
        """Gives up the connection, whose client does not read."""
        if (socket := self._socket) is not None:
            self._detach()
            socket.abort()

    # What the session's connection needs (`connection.Socket`)

    @property
    def close_code(self) -> int | None:
        return self._close_code if self._socket is None else self._socket.close_code

    async def receive(self) -> str | bytes:
        """Returns the next message. Raises SocketClosed once the session can not be resumed any more."""
        while True:
            socket = await self._present_socket()
            try:
                message = await socket.receive()
            except SocketClosed:
                self._on_closed(socket)
                continue
            if socket is self._socket:  # otherwise the client sends it again
                self._count()
                return message

    def send(self, message: str | bytes) -> None:
        """Keeps the message, and writes it if there is a connection. Raises SocketClosed."""
        if self.ended:
            raise SocketClosed
        behind = self._written < self._sent
        self._kept.append(message)
        self._count_kept(message, 1)
        self._sent += 1
        if not behind:
            self._write_next()

    @property
    def blocked(self) -> bool:
        """Whether there is no connection, its buffer is full, or too much is unconfirmed."""
        socket = self._socket
        return socket is None or self._full or socket.blocked

    @property
    def _full(self) -> bool:
        much = self._kept_bytes > UNCONFIRMED_BYTES or self._kept_text_bytes > UNCONFIRMED_TEXT_BYTES
        return much or self._written < self._sent

    def _count_kept(self, message: str | bytes, times: int) -> None:
        size = times * (len(message) + MESSAGE_OVERHEAD_BYTES)
        self._kept_bytes += size
        self._kept_text_bytes += size if isinstance(message, str) else 0

    async def wait_writable(self) -> None:
        """Waits until writes are not blocked. Raises SocketClosed. Cancelling it loses nothing."""
        while self.blocked:
            if self.ended:
                raise SocketClosed
            if (socket := self._socket) is None or self._full:
                if socket is not None and socket.close_code is not None:
                    self._on_closed(socket)  # nothing else would notice while the reader waits for the writer
                    continue
                await self._changed.wait()
                continue
            try:
                await socket.wait_writable()
            except SocketClosed:
                self._on_closed(socket)

    def probe(self, on_read: Callable[[], None]) -> None:
        """Has `on_read` called when the client has read everything sent so far; never, if the connection is lost."""
        if (socket := self._socket) is not None:
            try:
                socket.probe(on_read)
            except SocketClosed:
                self._on_closed(socket)

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:
        """Closes the socket for good; aborts the connection after `timeout_s`."""
        socket = self._socket
        self._end(code)
        if socket is not None:
            await socket.close_within(code, reason, timeout_s)

    def finish(self) -> None:
        """The session has ended."""
        self._end(self.close_code)

    # Connections

    def stop_waiting(self) -> None:
        """Ends the session if it has no connection, or when it loses the present one."""
        self._within_s = 0.0
        self._check_patience()

    def accepts(self, token: str) -> bool:
        """Whether the session can be resumed with `token`. Takes the same time for every wrong token."""
        matches = [hmac.compare_digest(known.encode(), token.encode()) for known in self._tokens]
        return any(matches) and not self.ended

    def attach(self, socket: LosableSocket, resume: Resume) -> None:
        """Replaces the connection, lost or not, by that of `socket`. Raises ResumeFailed, and changes nothing then."""
        if not self._confirmed <= resume.received <= self._sent:
            kept = f"{self._confirmed} to {self._sent}"
            raise ResumeFailed(f"received must be within the messages that are kept, {kept}, got {resume.received}")
        old = self._socket
        if old is not None:
            self._detach()
            old.abort()
        now_s = self._loop.time()
        self._away_s, self._since_s, self._useful = self._away_s + now_s - self._since_s, now_s, False
        self._drop_until(resume.received)
        self._written = resume.received
        self._tokens = [resume.token, self._new_token()]
        self._socket, self._received_confirmed = socket, self._received
        self._stop_timer()
        try:
            socket.send(ResumedMessage(session=self.name, received=self._received, resume=self.offer).model_dump_json())
        except SocketClosed:
            self._on_closed(socket)
            return
        self._observer.resumption(RESUMED)
        log.info("session resumed", extra={"session": self.name})
        self.watcher.on_attached()
        self._notify()

    async def serve(self, socket: LosableSocket) -> None:
        """Sends again what the client has not received, then waits until `socket` is replaced or closed."""
        while socket is self._socket and self._written < self._sent:
            if not socket.blocked:
                await self._steps.enter(self._caller, 1)
                if socket is self._socket and self._written < self._sent:
                    self._write_next()
                continue
            try:
                await socket.wait_writable()
            except SocketClosed:
                self._on_closed(socket)
        self._notify()
        while socket is self._socket:
            await self._changed.wait()

    def _write_next(self) -> None:
        """Writes the first message that the present connection has not got."""
        if (socket := self._socket) is not None:
            try:
                socket.send(self._kept[self._written - self._confirmed])
            except SocketClosed:
                self._on_closed(socket)
            else:
                self._written += 1

    def _count(self) -> None:
        """Counts a message of the client, which has got the newest token if it came on a new connection."""
        self._received += 1
        del self._tokens[:-1]
        if self._received - self._received_confirmed >= CONFIRM_MESSAGES and not self._full:
            self._received_confirmed = self._received
            with suppress(SocketClosed):
                self.send(ReceivedMessage(messages=self._received).model_dump_json())

    def _on_closed(self, socket: LosableSocket) -> None:
        """The connection of `socket` ended: by a close, which ends the session, or by a loss."""
        if socket is not self._socket:
            return
        if socket.broken:
            self._detach()
            socket.abort()
        else:
            self._end(socket.close_code)

    def _detach(self) -> None:
        now_s = self._loop.time()
        # Otherwise a client that never reads could hold its slots by resuming again and again.
        self._away_s = 0.0 if self._useful else self._away_s + now_s - self._since_s
        self._socket, self._since_s, self._looks = None, now_s, 0
        self._observer.resumption(DETACHED)
        log.info("session detached", extra={"session": self.name})
        self.watcher.on_detached()
        self._notify()
        self._stop_timer()
        self._timer = self._loop.call_soon(self._look_again)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, code: int | None) -> None:
        if not self.ended:
            if self._socket is None:
                self._observer.resumption(EXPIRED)
            self._close_code, self._socket, self.ended = code, None, True
            self._stop_timer()
            self._notify()

    async def _present_socket(self) -> LosableSocket:
        """Waits for a connection. Raises SocketClosed when the session has ended."""
        while self._socket is None:
            if self.ended:
                raise SocketClosed
            await self._changed.wait()
        return self._socket

    def _check_patience(self) -> None:
        """Ends a session that has had no connection for too long. A timer: its reader may wait for its writer."""
        self._stop_timer()
        if self._socket is not None or self.ended:
            return
        waited_s = self._away_s + self._loop.time() - self._since_s
        self._looks = self._looks + 1 if waited_s >= CONTESTED_S and self._contested() else 0
        if waited_s >= self._within_s or self._looks > 1:  # a slot may just be on its way to those who wait
            self._end(None)
        else:
            self._timer = self._loop.call_later(min(POLL_S, self._within_s - waited_s), self._look_again)

    def _look_again(self) -> None:
        """Checks the patience soon: thousands of connections may have been lost in the same moment."""
        self._steps.call(1, self._check_patience, self._caller)

    def _new_token(self) -> str:
        return secrets.token_urlsafe(TOKEN_BYTES)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
