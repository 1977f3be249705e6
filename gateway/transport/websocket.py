"""A server WebSocket on the websockets library: bounded buffers, separate write and wait, read probes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import DATA_OPCODES, CloseCode, Frame, Opcode
from websockets.protocol import Event, State

from ..access.caller import Grant
from ..errors import Unauthorized
from ..messages.connection import CloseCode as GatewayCloseCode
from ..protocols.endpoint import FirstMessageKey
from ..session.protocol import WireProtocol
from ..session.utterance_factory import UtteranceFactory
from .buffer_limits import WriteDeadline, limit_send_buffer
from .connection import END_STEPS, SocketClosed
from .connection_pool import ConnectionPlace
from .frame_policy import FramePolicy
from .resumption import ResumableSocket
from .sessions import ConnectionSlot
from .turn_budget import TurnBudget

SEND_BUFFER_BYTES = 16_384
"""Requested size of the kernel's send buffer, in bytes: a few seconds of Opus, so that a slow consumer blocks soon."""
ABORT_ABOVE_BYTES = 131_072
"""Write buffer above which a connection is aborted, in bytes.

Only a client that sends pings without reading the pongs gets there: the library answers pings without flow control.
"""
CLOSE_TIMEOUT_S = 1.0
"""Seconds that a client has to answer a closing handshake before its connection is aborted."""

LOSS_CODES = (CloseCode.INTERNAL_ERROR, GatewayCloseCode.LOST)
"""Close codes of a lost connection: a ping was not answered, or the client resumes the session on another one."""

_BINARY = 0x80 | Opcode.BINARY


def frame_head(length: int) -> bytes:
    """Returns the head of an unfragmented, unmasked binary frame (RFC 6455, section 5.2)."""
    if length < 126:
        return bytes((_BINARY, length))
    if length < 65536:
        return struct.pack("!BBH", _BINARY, 126, length)
    return struct.pack("!BBQ", _BINARY, 127, length)


class LostTransport(asyncio.Transport):
    """Takes the place of the transport of a lost connection: the event loops' own fail when they are used then."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Drops the data."""

    def pause_reading(self) -> None:
        """Does nothing, as the following ones."""

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


LOST = LostTransport()


class BoundedConnection(ServerConnection):
    """A `connection.Socket` with small buffers; aborts the connection when its write buffer grows beyond them.

    The handshake sets the attributes below.
    """

    slot: ConnectionSlot | None = None
    """Reserved socket of the gateway and of its caller; released when the connection is lost."""
    client_address: str
    """Address of the client, which a trusted proxy may have forwarded."""
    open_protocol: Callable[[UtteranceFactory], WireProtocol]
    """Opens the protocol of the endpoint that the client chose. Raises VoxgateError."""
    wire_protocol: WireProtocol
    """The opened protocol."""
    chosen_subprotocol: str | None = None
    """Subprotocol that the response confirms."""
    first_message_key: FirstMessageKey | None = None
    """Reads the API key from the first message; None when the handshake authenticated the client."""
    grant: Grant | None = None
    """What the client may do, where the handshake authenticated it and its first message resumes a session."""
    resumes: str | None = None
    """Name of the session that the first message resumes."""
    resumed: ResumableSocket | None = None
    """The session's socket, which the first message resumed."""
    evicted = False
    """Whether the socket had to make room for another one that waits for its key."""
    _first_message: str | bytes | None = None
    """Message that authentication received before the session; `receive` returns it first."""

    def __init__(
        self,
        *args: Any,
        place: ConnectionPlace,
        budget: TurnBudget,
        write_timeout_s: float,
        frames_per_s: float,
        **options: Any,
    ) -> None:
        """`place` is released when the connection is lost; the ends of many share the `budget` of sessions' steps.

        `write_timeout_s`: seconds without progress after which a client that does not read is cut.

        The session judges its own writes earlier; it does not see the pongs of the library. `frames_per_s`: rate of
        frames above which a client is disconnected.
        """
        super().__init__(*args, **options)
        self._place = place
        self._known_caller = ""
        self._budget = budget
        self._frame_policy = FramePolicy(frames_per_s)
        self._write_deadline = WriteDeadline(write_timeout_s)
        self._close_timer: asyncio.TimerHandle | None = None

    @property
    def broken(self) -> bool:
        """Whether the connection was lost: without a close, or with one that says so."""
        closes = [close.code for close in (self.protocol.close_rcvd, self.protocol.close_sent) if close is not None]
        return not closes or any(code in LOSS_CODES for code in closes)

    def abort(self) -> None:
        """Cuts the connection."""
        self.transport.abort()

    def go_on_with(self, resumed: ResumableSocket, caller: str) -> None:
        """The connection goes on with a session of `caller`, which has a slot already."""
        self.resumed, self._known_caller = resumed, caller

    def hand_over_slot(self) -> None:
        """Leaves the slot to the session, which outlives this connection."""
        self._known_caller, self.slot = self.caller_name, None

    @property
    def caller_name(self) -> str:
        """Name of the caller; until its key is known, of the caller that its connection counts for."""
        return self._known_caller or self._place.caller if self.slot is None else self.slot.grant.caller.name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        limit_send_buffer(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):  # optional: the gateway works without these options
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = LOST
        self._place.release()
        self._write_deadline.cancel()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._take_turn(partial(self._end, exc))

    def eof_received(self) -> None:
        """Ends the session soon; returns None, because the library closes the connection too."""
        self._take_turn(super().eof_received)

    def _take_turn(self, end: Callable[[], None]) -> None:
        """Calls `end`, which ends the tasks of the session and takes time; thousands of clients may vanish at once."""
        self._budget.call(END_STEPS, end, self.caller_name)

    def _end(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # The library keeps both errors. The frames that raised them refer to this connection, so that only a collection
        # of garbage would free it.
        for error in (exc, self.protocol.parser_exc):
            if error is not None:
                error.__traceback__ = None
        if self.slot is not None:  # the handshake may have failed after the slot was reserved
            self.slot.release()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline.start(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline.cancel()

    def make_room(self) -> None:
        """The handshake is refused: while the client has not closed the connection, another one may take its place."""
        self._place.rest()

    def hold_slot(self, slot: ConnectionSlot) -> None:
        """Holds `slot` until the connection is lost; releases it at once if the connection is lost already."""
        self.slot = slot
        if self.state is State.CLOSED:
            slot.release()

    def data_received(self, data: bytes) -> None:
        if self.request is not None and self.state is State.CONNECTING:
            # Frames before the handshake's response: the library would parse them, and fail if it refuses afterwards.
            self.transport.abort()
            return
        super().data_received(data)
        if self.state is State.OPEN and self.transport.get_write_buffer_size() > ABORT_ABOVE_BYTES:
            self.transport.abort()
        elif self._frame_policy.too_many_bytes(len(data)):
            self._disconnect("too many bytes before the API key", CloseCode.MESSAGE_TOO_BIG)
        elif self.state is State.CLOSING:
            self._limit_close()

    def _limit_close(self) -> None:
        """Aborts a connection whose client does not end it within `CLOSE_TIMEOUT_S` of the closing handshake."""
        if self._close_timer is None:
            self._close_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def process_event(self, event: Event) -> None:
        if not isinstance(event, Frame) or event.opcode is Opcode.CLOSE:
            super().process_event(event)
            return
        unsolicited = event.opcode is Opcode.PONG and bytes(event.data) not in self.pending_pings
        control = unsolicited or event.opcode is Opcode.PING
        fin = event.fin if event.opcode in DATA_OPCODES else None
        violation = self._frame_policy.violation(self.loop.time(), control=control, fin=fin)
        super().process_event(event)
        if violation is not None:
            self._disconnect(violation)
        elif self.first_message_key is not None and event.fin and event.opcode in DATA_OPCODES:
            # What the client has sent after its first message waits until the key in it was checked.
            self._frame_policy.lift()
            self.transport.pause_reading()

    def _disconnect(self, reason: str, code: CloseCode = CloseCode.POLICY_VIOLATION) -> None:
        """Closes the socket because of a policy, and reads nothing more."""
        if self.state is State.OPEN:
            self.protocol.fail(code, reason)
            self.send_data()
            self.transport.pause_reading()
            self._limit_close()

    def require_first_message(self, reader: FirstMessageKey) -> None:
        """Restricts the client until it has shown its key in its first message, which `reader` finds there."""
        self.first_message_key = reader
        self._frame_policy.restrict()

    def accept_first(self, message: str | bytes | None) -> None:
        """Ends the restrictions of `require_first_message`; `receive` returns `message`, if given, once more."""
        self.first_message_key = None
        self._first_message = message
        if not self.recv_messages.paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> str | bytes:
        """Returns the next message. Raises SocketClosed. Cancelling it loses no message."""
        if self._first_message is not None:
            message, self._first_message = self._first_message, None
            return message
        try:
            return await self.recv()
        except ConnectionClosed:
            raise SocketClosed from None

    def evict(self) -> None:
        """Ends the connection at once: under a flood, closing handshakes would hold the memory."""
        self.evicted = True
        if self.state is State.OPEN:
            self.protocol.fail(CloseCode.POLICY_VIOLATION, Unauthorized.code)
            self.send_data()
        self.transport.abort()

    # The library's `send` writes and waits in one call. The session has to see a blocked write at once, so `send` only
    # writes, and `wait_writable` waits. Messages are never fragmented, which is all that the library's `send` adds.

    def send(self, message: str | bytes) -> None:  # type: ignore[override]  # synchronous, see above
        """Writes a message without waiting. Raises SocketClosed."""
        if self.state is not State.OPEN:
            raise SocketClosed
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
            self.send_data()
        else:
            # Audio packets are most of the traffic, and building the library's frames costs more than sending them.
            # A server does not mask frames (RFC 6455, section 5.1).
            self.transport.write(frame_head(len(message)) + message)

    @property
    def blocked(self) -> bool:
        return self.paused

    async def wait_writable(self) -> None:
        """Waits until the write buffer is below its limit. Raises SocketClosed."""
        try:
            await self.drain()
        except OSError:
            raise SocketClosed from None

    def probe(self, on_read: Callable[[], None]) -> None:
        """Sends a ping and calls `on_read` at its pong. Raises SocketClosed.

        A pong proves that the client has read everything sent before its ping.
        """
        if self.state is not State.OPEN:
            raise SocketClosed
        # The library's own `ping` waits for the write buffer.
        pong = self.loop.create_future()
        pong.add_done_callback(lambda pong: None if pong.cancelled() or pong.exception() else on_read())
        # Random, so that a client cannot answer a ping that it has not read, nor count the gateway's pings.
        payload = secrets.token_bytes(8)
        self.pending_pings[payload] = (pong, self.loop.time())
        self.protocol.send_ping(payload)
        self.send_data()

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:
        """Closes the socket; aborts the connection after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.close(code, reason)
        except TimeoutError:
            self.transport.abort()
