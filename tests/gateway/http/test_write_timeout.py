"""Write timeout of responses: a client that reads slowly is waited for, one that reads nothing is disconnected."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any, cast

import pytest
from fakes.gateway.loopback import gateway
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.virtual_time import run
from fakes.waiting import DEADLINE_S, until
from voxgate.gateway.http.connection import HTTP_WRITE_LIMIT_BYTES, WRITE_TIMEOUT_S, WriteTimeout
from voxgate.gateway.transport.buffer_limits import UNSENT_BYTES


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.limit = 0
        self.aborted_s: float | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 - theirs
        self.limit = high or 0

    def abort(self) -> None:
        self.aborted_s = asyncio.get_running_loop().time()


class Server(asyncio.Protocol):
    def __init__(self) -> None:
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: ARG002 - the interface's signature
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append(data.decode())

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface's signature
        self.told.append("lost")


def connect() -> tuple[Transport, Server, WriteTimeout]:
    transport, server = Transport(), Server()
    limit = WriteTimeout(server)
    limit.connection_made(transport)
    return transport, server, limit


def test_client_that_reads_nothing_is_cut() -> None:
    async def scene() -> None:
        transport, _, limit = connect()
        limit.pause_writing()
        await asyncio.sleep(WRITE_TIMEOUT_S - 1)
        assert transport.aborted_s is None
        await asyncio.sleep(2)
        assert transport.aborted_s == pytest.approx(WRITE_TIMEOUT_S)

    run(scene())


@pytest.mark.parametrize("end", ["resume_writing", "connection_lost"])
def test_reading_or_closed_clients_are_not_cut(end: str) -> None:
    async def scene() -> None:
        transport, _, limit = connect()
        for _ in range(5):
            limit.pause_writing()
            await asyncio.sleep(WRITE_TIMEOUT_S / 2)
            limit.connection_lost(None) if end == "connection_lost" else limit.resume_writing()
        await asyncio.sleep(2 * WRITE_TIMEOUT_S)
        assert transport.aborted_s is None

    run(scene())


def test_wrapped_protocol_gets_every_call() -> None:
    async def scene() -> None:
        transport, server, limit = connect()
        limit.data_received(b"GET")
        limit.pause_writing()
        limit.resume_writing()
        limit.connection_lost(None)
        assert server.told == ["made", "GET", "pause", "resume", "lost"]
        assert transport.limit == HTTP_WRITE_LIMIT_BYTES

    run(scene())


async def test_send_buffer_of_the_kernel_is_small() -> None:
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Looking(Server):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock: Any = transport.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT))

    server = await asyncio.get_running_loop().create_server(lambda: WriteTimeout(Looking()), "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(DEADLINE_S):
            assert await found == UNSENT_BYTES
        writer.close()


async def test_small_unsent_rest_does_not_keep_a_closed_connection() -> None:
    lost = asyncio.Event()

    class Answering(Server):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport = cast(asyncio.WriteTransport, transport)  # uvloop's are no subclass
            while not transport.get_write_buffer_size():
                transport.write(bytes(1024))
            transport.close()

        def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface's signature
            lost.set()

    # Of a fixed size, where TCP takes more by and by.
    ours, unreading = socket.socketpair()
    await asyncio.get_running_loop().create_unix_connection(lambda: WriteTimeout(Answering(), 0.01), sock=ours)
    async with asyncio.timeout(DEADLINE_S):
        await lost.wait()
    unreading.close()


@pytest.mark.parametrize(("slow_consumer_timeout_ms", "least_s"), [(3000, WRITE_TIMEOUT_S), (20_000, 201)])
async def test_session_times_out_before_its_connection(slow_consumer_timeout_ms: int, least_s: float) -> None:
    async with gateway(slow_consumer_timeout_ms=slow_consumer_timeout_ms) as served:
        place = served._listener._pool.add(Transport())
        connection = served._listener._http.connection(place, lambda _: asyncio.Protocol())
        assert isinstance(connection, WriteTimeout)
        assert connection._deadline._limit_s >= least_s


async def test_client_that_resets_the_connection_while_a_write_waits_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    synthesizer = ToneSynthesizer(max_characters=60_000)
    body = json.dumps({"text": "x" * 60_000}).encode()
    head = f"POST /v1/text-to-speech/ada?output_format=pcm_24000 HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    async with gateway(synthesizer, max_characters=60_000) as served, asyncio.timeout(DEADLINE_S):
        sock = socket.create_connection(("127.0.0.1", served.port))
        sock.sendall(head.encode() + b"\r\n" + body)
        await until(lambda: synthesizer.speeches)
        made = 0
        while made != (made := synthesizer.speeches[0].made):  # until the unread answer stops the talker
            await asyncio.sleep(0.1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        await until(lambda: not synthesizer.open_speeches)
        await until(lambda: not len(served._sessions))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
