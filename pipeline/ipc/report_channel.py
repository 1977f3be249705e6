"""Carries the engine's reports to the processes that run generations in it.

Each process listens on an abstract Unix socket of packets in order: no thread and no poller between the two ends, and
no file is left behind however a process ends.
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
"""Of a message; more records are sent in several."""
MAX_BACKLOG_BYTES = 16 << 20
"""Kept for a process that does not read; further reports to it are dropped, since it hangs by then."""
_SEND_BUFFER_BYTES = 1 << 20
"""Requested of the kernel, which may allow less."""
_MAX_READS = 64
"""Messages taken from one sender before the event loop runs other callbacks."""

log = logging.getLogger(__name__)


class ReportSender:
    """The engine's end; not thread-safe.

    `addresses`: of the `ReportReceiver` of each process, by its number. A process is connected to when there is a
    report for it, and again after it was restarted.
    """

    def __init__(self, addresses: Sequence[str], groups: int) -> None:
        self._connections = [_Connection(address) for address in addresses]
        self._groups = groups
        record_bytes = 4 * (HEADER + groups)
        self._part_bytes = MAX_PACKET_BYTES // record_bytes * record_bytes

    def send(self, message: bytes) -> None:
        """Sends each process its part without waiting; drops parts for a process that does not listen.

        The engine's step serves all processes and must not wait for one that hangs.
        """
        parts = {0: message} if len(self._connections) == 1 else split_by_process(message, self._groups)
        for process, part in parts.items():
            if process < len(self._connections):
                for begin in range(0, len(part), self._part_bytes):
                    self._connections[process].send(part[begin : begin + self._part_bytes])

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class _Connection:
    """To one process. A thread sends what the process does not read in time."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address}"
        self._sock: socket.socket | None = None
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._lock = threading.Lock()

    def send(self, message: bytes) -> None:
        with self._lock:
            if self._backlog:
                # Messages stay in order.
                self._keep(message)
            elif not self._try_send(message):
                self._keep(message)
                threading.Thread(target=self._send_backlog, name="report-backlog", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _try_send(self, message: bytes) -> bool:
        """Sends without waiting; False if the socket is full. A message that no process listens for is dropped."""
        for _ in range(2):
            try:
                self._connected().send(message, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except ConnectionRefusedError:
                break
            except OSError:
                # The process is gone; its successor may listen at the same address.
                self._disconnect()
            else:
                return True
        self._disconnect()
        return True

    def _connected(self) -> socket.socket:
        if self._sock is None:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            self._sock.connect(self._address)
        return self._sock

    def _keep(self, message: bytes) -> None:
        if self._backlog_bytes + len(message) <= MAX_BACKLOG_BYTES:
            self._backlog.append(message)
            self._backlog_bytes += len(message)

    def _send_backlog(self) -> None:
        """Runs in a thread until the backlog is sent or the connection is lost."""
        while True:
            with self._lock:
                if not self._backlog or self._sock is None:
                    return
                sock, message = self._sock, self._backlog[0]
            try:
                sock.send(message)
            except OSError:
                with self._lock:
                    if self._sock is sock:
                        self._disconnect()
                return
            with self._lock:
                if self._backlog and self._sock is sock:
                    self._backlog.popleft()
                    self._backlog_bytes -= len(message)

    def _disconnect(self) -> None:
        if self._sock is not None:
            with suppress(OSError):
                # Closing the socket alone would leave the thread blocked in `send`.
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()
        self._sock = None
        self._backlog.clear()
        self._backlog_bytes = 0


class ReportReceiver:
    """A process's end; listens from its construction until `close`, on the event loop.

    `on_message` gets each message, those of one sender in order. Processes of other users are refused. Raises OSError
    when the address is in use.
    """

    def __init__(self, address: str, on_message: Callable[[bytes], object]) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(MAX_PACKET_BYTES))
        self._senders: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listener.bind(f"\0{address}")
        except OSError:
            self._listener.close()
            raise
        self._listener.listen(16)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Safe to call twice."""
        for sock in (self._listener, *self._senders):
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)
                sock.close()
        self._senders.clear()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
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
        for _ in range(_MAX_READS):
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
            self._on_message(bytes(self._buffer[:length]))
            if sock not in self._senders:
                # The callback closed this receiver.
                return
