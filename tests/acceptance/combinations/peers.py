"""Clients of a run: `Listener`, `Request` and `Probe` keep the rules; a `Peer` sends and reads what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import socket
import ssl
import struct
from typing import Any, TypeVar

from fakes.pipeline.tone_synthesizer import DEFAULT_SEED

from ..testbed.expected_audio import expected_packets
from ..testbed.paired_loop import PairedLoop
from ..testbed.raw_websocket import RawClient
from ..testbed.resumable_websocket import ResumableWebSocket

HOST = "127.0.0.1"
BUFFER_BYTES = 16_384
"""Buffers of a TCP client: small, so that one that does not read soon blocks the gateway."""
_RESET = struct.pack("ii", 1, 0)
_TCP_QUICKACK = getattr(socket, "TCP_QUICKACK", 12)
_IP_BIND_ADDRESS_NO_PORT = 24


def confirm_receipt(sock: socket.socket) -> None:
    """Acknowledges at once what was received: a delayed acknowledgement would come in real time."""
    with contextlib.suppress(OSError):  # closed meanwhile
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_QUICKACK, 1)


class Listener(RawClient):
    """A native client that keeps the rules. What it received is in `received`."""

    sock: socket.socket

    def data_received(self, data: bytes) -> None:
        confirm_receipt(self.sock)
        super().data_received(data)


class Peer(ResumableWebSocket):
    """A client without rules. It begins with `first`: a handshake, a request, or anything else."""

    sock: socket.socket

    def __init__(self, first: bytes, protocol: str, headers: tuple[str, ...] = ()) -> None:
        super().__init__(first)
        self.headers = headers
        self.protocol = protocol
        """Kind of messages that it sends: "native", "elevenlabs", "deepgram", "cartesia", or "http" for none."""
        self.reading = True
        self.stalled_s: float | None = None
        """Since when it has not read."""
        self.left = False
        """Whether it gave up its connection."""
        self.utterances = 0
        """Utterances that it started."""
        self.asked: dict[str, dict[str, Any]] = {}
        """Fields of the starts of utterances by name, as the gateway completed them, and their text."""
        self.checkpoints: dict[str, list[str]] = {}
        """Parts of the checkpoints of its utterances."""
        self.sips: list[asyncio.TimerHandle] = []
        """When it reads a little although it is stalled."""
        self._half_closed = False

    @property
    def open(self) -> bool:
        return not self.closed.done() and not self.left

    @property
    def upgraded(self) -> bool:
        return self.answered.done() and self.answered.result() == 101

    def data_received(self, data: bytes) -> None:
        confirm_receipt(self.sock)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.stop_sipping()

    def take_message(self, message: Any) -> None:
        super().take_message(message)
        if self.protocol != "native":
            return
        if message["type"] == "started" and (asked := self.asked.get(message["utterance"])) is not None:
            asked |= {name: message[name] for name in ("voice", "language", "seed")}
        elif message["type"] == "checkpoint":
            self.checkpoints.setdefault(message["utterance"], []).append(message["part"])

    def _take(self, opcode: int, payload: bytes) -> None:
        if not self._half_closed:  # otherwise it can answer neither pings nor a closing handshake
            super()._take(opcode, payload)

    def stall(self) -> None:
        """Stops reading."""
        if self.reading and not self.transport.is_closing():
            self.transport.pause_reading()
            self.reading, self.stalled_s = False, self.now()

    def resume(self) -> None:
        """Reads again."""
        if not self.reading and not self.transport.is_closing():
            self.transport.resume_reading()
            self.reading, self.stalled_s = True, None

    def sip(self, size: int) -> None:
        """Reads up to `size` bytes while it is stalled; not over TLS."""
        if self.reading or self.transport.is_closing() or self.transport.get_extra_info("sslcontext"):
            return
        with contextlib.suppress(OSError):
            if data := self.sock.recv(size):
                self.data_received(data)

    def stop_sipping(self) -> None:
        """Reads nothing more while it is stalled."""
        for timer in self.sips:
            timer.cancel()

    def half_close(self) -> None:
        """Sends the end of the stream and goes on reading."""
        # With data still to be written, asyncio sends the end later, and fails if the connection is reset meanwhile.
        waits = self.transport.get_write_buffer_size() > 0
        if self.transport.can_write_eof() and not self.transport.is_closing() and not waits:
            self._half_closed = True
            with contextlib.suppress(OSError):  # the gateway closed the connection, which the peer has not seen yet
                self.transport.write_eof()

    def reset(self) -> None:
        """Aborts the connection with a TCP reset."""
        self.left = True
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def vanish(self) -> None:
        """Closes the connection without a word."""
        self.left = True
        self.transport.abort()

    def write(self, data: bytes) -> None:
        """Sends bytes, if it still can."""
        if not self.transport.is_closing() and not self._half_closed:
            self.transport.write(data)


class Request(asyncio.Protocol):
    """A well-behaved POST of one text. `over` gives the status, 0 for a connection that was lost."""

    sock: socket.socket

    def __init__(self, text: str, headers: tuple[str, ...]) -> None:
        loop = asyncio.get_running_loop()
        self.text = text
        self.over: asyncio.Future[int] = loop.create_future()
        self.asked_s, self.first_audio_s, self.over_s = loop.time(), 0.0, 0.0
        self.now = loop.time
        self._received = bytearray()
        body = json.dumps({"model": "qwen3-tts", "input": text, "voice": "ada", "response_format": "pcm"}).encode()
        lines = ["POST /v1/audio/speech HTTP/1.1", f"Host: {HOST}", "Connection: close", *headers]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._request = "\r\n".join([*lines, "\r\n"]).encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        confirm_receipt(self.sock)
        self.first_audio_s = self.first_audio_s or self.now()
        self._received += data

    def connection_lost(self, _: Exception | None) -> None:
        self.over_s = self.now()
        words = self._received.split(b" ", 2)
        self.over.set_result(int(words[1]) if len(words) > 2 else 0)

    @property
    def mismatch(self) -> str:
        """How a complete answer differs from the expected audio; empty when it does not."""
        head, _, body = bytes(self._received).partition(b"\r\n\r\n")
        try:
            audio = _without_chunks(body) if b"chunked" in head.lower() else body
        except ValueError:
            return f"the answer is cut after {len(body)} bytes"
        digest, samples = expected_packets(self.text, DEFAULT_SEED, "pcm")
        if len(audio) != 2 * samples:
            return f"{len(audio)} bytes instead of {2 * samples}"
        return "" if hashlib.sha256(audio).hexdigest() == digest else "audio differs from the offline audio"


class Probe(asyncio.Protocol):
    """Asks for a document of an orchestrator. `status` is that of the answer, 0 while there is none."""

    sock: socket.socket

    def __init__(self, path: str, allowed: frozenset[int]) -> None:
        """`allowed`: the statuses of a right answer."""
        self.path, self.allowed = path, allowed
        self.status = 0
        self._now = asyncio.get_running_loop().time
        self.asked_s, self.answered_s = self._now(), math.inf

    @property
    def waited_s(self) -> float:
        """How long the answer took; infinity without one."""
        return self.answered_s - self.asked_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"GET {self.path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        confirm_receipt(self.sock)
        if not self.status:
            self.status, self.answered_s = int(data.split(b" ", 2)[1]), self._now()


def _without_chunks(body: bytes) -> bytes:
    """The content of a chunked body (RFC 9112, section 7.1). Raises ValueError when its end is missing."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


Client = TypeVar("Client", Listener, Peer, Request, Probe)


async def connect(
    client: Client, port: int, *, address: str = HOST, tls: ssl.SSLContext | None = None, tcp: bool = False
) -> Client:
    """Connects `client` from a loopback address. Raises OSError, and ssl.SSLError or ConnectionError for TLS."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PairedLoop)
    client.sock = _connect_tcp(port, address) if tcp else loop.connect_pair(port, address)
    name = "localhost" if tls is not None else None
    await loop.create_connection(lambda: client, sock=client.sock, ssl=tls, server_hostname=name)
    return client


def _connect_tcp(port: int, address: str) -> socket.socket:
    # asyncio turns Nagle's algorithm off for sockets that name their protocol. It would hold back, in real time, what
    # follows unconfirmed data.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)  # ports are used again for other gateways
    # Buffers of a fixed size, because the kernel adapts its own to the time that passes in reality.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    sock.bind((address, 0))
    sock.connect_ex((HOST, port))
    return sock
