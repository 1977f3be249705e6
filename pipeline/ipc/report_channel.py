"""The way of the engine's reports to the processes that they are for: one of the kernel's own messages for each.

Abstract sockets of packets in order: no thread and no poller between the two ends, and no file left behind however a
process ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from .peer_credentials import is_same_user, peer_uid
from .records import HEADER, split_by_process

MAX_PACKET_BYTES = 1 << 16
"""Of a message; more records than fit go in several."""
MAX_BACKLOG_BYTES = 16 << 20
"""ReportSender kept for a process that does not read; it has gone astray by then, and misses the rest."""
_SENDING_BYTES = 1 << 20
"""Asked of the kernel for what is under way; it gives what it allows."""
_LOOKS = 64
"""Messages taken from a sender before the event loop has its turn."""

log = logging.getLogger(__name__)


class ReportSender:
    """The engine's end. `addresses`: of the `ReportReceiver` of each process that runs generations in it. Not thread-safe.

    A process is connected to when there is first something to tell it, and again when it was started anew.
    """

    def __init__(self, addresses: Sequence[str], groups: int) -> None:
        self._ways = [_Connection(address) for address in addresses]
        self._groups = groups
        record_bytes = 4 * (HEADER + groups)
        self._part_bytes = MAX_PACKET_BYTES // record_bytes * record_bytes

    def send(self, message: bytes) -> None:
        """Send records to whom they concern, without a wait; those of a process that takes none any more are dropped.

        The engine's step, which everybody's frames are made in, must not be held up by one that hangs.
        """
        parts = {0: message} if len(self._ways) == 1 else split_by_process(message, self._groups)
        for owner, part in parts.items():
            if owner < len(self._ways):
                for begin in range(0, len(part), self._part_bytes):
                    self._ways[owner].send(part[begin : begin + self._part_bytes])

    def close(self) -> None:
        for way in self._ways:
            way.close()


class _Connection:
    """To one process. What it does not read in time is kept, and sent by a thread that waits for it."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address}"
        self._sock: socket.socket | None = None
        self._late: deque[bytes] = deque()
        self._late_bytes = 0
        self._lock = threading.Lock()

    def send(self, message: bytes) -> None:
        with self._lock:
            if self._late:
                # It must not overtake what waits.
                self._keep(message)
            elif not self._pass(message):
                self._keep(message)
                threading.Thread(target=self._send_late, name="late reports", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _pass(self, message: bytes) -> bool:
        """Whether there is no more to do: it is off, or there is nobody to take it."""
        for _ in range(2):
            try:
                self._connected().send(message, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except ConnectionRefusedError:
                break
            except OSError:
                # Who was there is gone; another may have come in his place.
                self._forget()
            else:
                return True
        self._forget()
        return True

    def _connected(self) -> socket.socket:
        if self._sock is None:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDING_BYTES)
            self._sock.connect(self._address)
        return self._sock

    def _keep(self, message: bytes) -> None:
        if self._late_bytes + len(message) <= MAX_BACKLOG_BYTES:
            self._late.append(message)
            self._late_bytes += len(message)

    def _send_late(self) -> None:
        while True:
            with self._lock:
                if not self._late or self._sock is None:
                    return
                sock, message = self._sock, self._late[0]
            try:
                sock.send(message)
            except OSError:
                with self._lock:
                    if self._sock is sock:
                        self._forget()
                return
            with self._lock:
                if self._late and self._sock is sock:
                    self._late.popleft()
                    self._late_bytes -= len(message)

    def _forget(self) -> None:
        if self._sock is not None:
            with suppress(OSError):
                # Closing it alone would leave the thread waiting.
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()
        self._sock = None
        self._late.clear()
        self._late_bytes = 0


class ReportReceiver:
    """A process's end, from now until `close`: `take` gets each message, those of one sender in their order.

    Belongs to the event loop. Only processes of the same user are listened to. Raises OSError when the address is
    taken.
    """

    def __init__(self, address: str, take: Callable[[bytes], object]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(MAX_PACKET_BYTES))
        self._senders: set[socket.socket] = set()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._door.bind(f"\0{address}")
        except OSError:
            self._door.close()
            raise
        self._door.listen(16)
        self._door.setblocking(False)
        self._loop.add_reader(self._door, self._let_in)

    def close(self) -> None:
        """Safe to call twice."""
        for sock in (self._door, *self._senders):
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)
                sock.close()
        self._senders.clear()

    def _let_in(self) -> None:
        try:
            sock, _ = self._door.accept()
        except OSError:
            return
        if not is_same_user(sock):
            log.warning("report connection refused: its process belongs to user %d", peer_uid(sock))
            sock.close()
            return
        sock.setblocking(False)
        self._senders.add(sock)
        self._loop.add_reader(sock, partial(self._read, sock))

    def _read(self, sock: socket.socket) -> None:
        for _ in range(_LOOKS):
            try:
                length = sock.recv_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                length = 0
            if not length:
                self._loop.remove_reader(sock)
                self._senders.discard(sock)
                sock.close()
                return
            self._take(bytes(self._buffer[:length]))
            if sock not in self._senders:
                # What was taken made the owner close us.
                return
