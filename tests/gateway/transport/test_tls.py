"""TLS handshakes: their places in the pool, failures of every kind, and what arrives with the last flight."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from acceptance.testbed.raw_tls import RawTls
from fakes.certificates import self_signed
from fakes.waiting import until
from voxgate.gateway.settings import Settings
from voxgate.gateway.transport.connection_pool import PROBE_RESERVE, ConnectionPlace, ConnectionPool
from voxgate.gateway.transport.tls import READ_BYTES, TlsAcceptor, tls_context
from voxgate.gateway.transport.turn_budget import TURN_BYTES, TurnBudget

SHORT_S, LONG_S = 0.05, 60.0
RECORDS, RECORD_BYTES = 500, 22
"""Records of one byte, and the size of each (RFC 8446, section 5.2: header, content type and tag)."""
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    certificate, key = self_signed(tmp_path_factory.mktemp("certificate"), "gateway")
    context = tls_context(Settings(tls_certificate=certificate, tls_key=key))
    assert context is not None
    return context


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


class Echo(asyncio.Protocol):
    """Answers with what it receives; releases its place at the end, as servers do."""

    def __init__(self, place: ConnectionPlace) -> None:
        self._place = place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]  # a transport of TLS

    def connection_lost(self, _: Exception | None) -> None:
        self._place.release()


class Paused(Echo):
    """Does not read until `resume` is called; keeps what it receives then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.received: list[bytes] = []
        transport.pause_reading()  # type: ignore[attr-defined]  # a transport of TLS

    def data_received(self, data: bytes) -> None:
        self.received.append(data)


class Server:
    """A server of TLS with its pool."""

    def __init__(self, port: int, pool: ConnectionPool) -> None:
        self.port = port
        self.pool = pool

    async def connect(self) -> RawTls:
        """A client that is accepted."""
        open_before = self.pool.open
        client = await RawTls.connect(self.port)
        await until(lambda: self.pool.open > open_before)
        return client


@contextlib.asynccontextmanager
async def serving(
    context: ssl.SSLContext,
    deadline_s: float = LONG_S,
    limit: int = 10,
    budget: TurnBudget | None = None,
    serve: Callable[[ConnectionPlace], asyncio.Protocol] = Echo,
) -> AsyncIterator[Server]:
    """At the end every place is free, and no task is left."""
    pool, budget = ConnectionPool(limit, deadline_s), budget or TurnBudget(TURN_BYTES)
    server = await asyncio.get_running_loop().create_server(
        lambda: TlsAcceptor(context, pool, budget, serve), "127.0.0.1", 0
    )
    yield Server(server.sockets[0].getsockname()[1], pool)
    server.close()
    pool.close_idle()
    await until(lambda: pool.open == 0 and len(asyncio.all_tasks()) == 1)


async def shake_hands(client: RawTls) -> None:
    client.write(client.hello())
    client.write(await client.finish())


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_hello_in_any_pieces_is_answered(context: ssl.SSLContext, run: Run, piece: int) -> None:
    async def scene() -> None:
        async with serving(context) as server:
            client = await server.connect()
            hello = client.hello()
            for at in range(0, len(hello), piece):
                client.write(hello[at : at + piece])
                await asyncio.sleep(0)
            client.write(await client.finish())
            client.write(client.records(b"request", 7))
            assert await client.read() == b"request"
            client.abort()

    run(scene())


@pytest.mark.parametrize("size", [1, 1000])
def test_request_in_the_packet_of_the_last_flight_is_not_lost(context: ssl.SSLContext, run: Run, size: int) -> None:
    async def scene() -> None:
        async with serving(context) as server:
            client = await server.connect()
            client.write(client.hello())
            client.write(await client.finish() + client.records(b"request", size))
            received = b""
            while len(received) < len(b"request"):
                received += await client.read()
            assert received == b"request"
            client.abort()

    run(scene())


async def _says_nothing(_: RawTls) -> None:
    pass


async def _says_half_a_hello(client: RawTls) -> None:
    client.write(client.hello()[:100])


async def _says_hello_and_no_more(client: RawTls) -> None:
    client.write(client.hello())
    await client.finish()


async def _sends_no_request(client: RawTls) -> None:
    await shake_hands(client)


async def _speaks_http(client: RawTls) -> None:
    client.write(b"GET / HTTP/1.1\r\n\r\n")


async def _sends_a_broken_record(client: RawTls) -> None:
    client.write(b"\x16\x03\x01\x00\x05hello")


async def _breaks_its_last_flight(client: RawTls) -> None:
    client.write(client.hello())
    flight = await client.finish()
    client.write(flight[:-1] + bytes([flight[-1] ^ 1]))


BEGINNINGS = [_says_nothing, _says_half_a_hello, _says_hello_and_no_more, _sends_no_request]


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_connection_counts_before_its_handshake_and_ends_at_the_deadline(
    context: ssl.SSLContext, run: Run, begin: Callable[[RawTls], Awaitable[None]]
) -> None:
    async def scene() -> None:
        async with serving(context, SHORT_S) as server:
            client = await server.connect()
            with contextlib.suppress(ConnectionError):  # the deadline came first
                await begin(client)
            await client.until_closed()
            await until(lambda: server.pool.open == 0)

    run(scene())


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_connection_is_closed_for_others_at_any_moment_of_its_handshake(
    context: ssl.SSLContext, run: Run, begin: Callable[[RawTls], Awaitable[None]]
) -> None:
    async def scene() -> None:
        async with serving(context, limit=0) as server:
            client = await server.connect()
            await begin(client)
            others = [await server.connect() for _ in range(PROBE_RESERVE - 1)]
            others.append(await RawTls.connect(server.port))
            await client.until_closed()
            await until(lambda: server.pool.open == PROBE_RESERVE)
            for other in others:
                other.abort()

    run(scene())


@pytest.mark.parametrize("begin", BEGINNINGS)
@pytest.mark.parametrize("end", ["reset", "half-closed"])
def test_client_that_goes_away_in_its_handshake_frees_its_place(
    context: ssl.SSLContext, run: Run, begin: Callable[[RawTls], Awaitable[None]], end: str
) -> None:
    async def scene() -> None:
        async with serving(context) as server:
            client = await server.connect()
            await begin(client)
            if end == "reset":
                client.abort()
            else:
                client.end()
            await until(lambda: server.pool.open == 0)
            client.abort()

    run(scene())


@pytest.mark.parametrize("begin", [_speaks_http, _sends_a_broken_record, _breaks_its_last_flight])
def test_handshake_that_fails_frees_its_place_at_once(
    context: ssl.SSLContext, run: Run, begin: Callable[[RawTls], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with serving(context) as server:
            client = await server.connect()
            await begin(client)
            await client.until_closed()
            await until(lambda: server.pool.open == 0)

    run(scene())
    assert not caplog.records


def test_place_given_up_before_the_task_of_the_handshake_runs(context: ssl.SSLContext, run: Run) -> None:
    async def scene() -> None:
        async with serving(context, limit=0) as server:
            client = await server.connect()
            hello = client.hello()
            (place,) = (place for idle in server.pool._idle.values() for place in idle)
            acceptor = place.transport.get_protocol()
            assert isinstance(acceptor, TlsAcceptor)
            acceptor.data_received(hello)
            server.pool.close_idle()
            await client.until_closed()

    run(scene())


class RecordingBudget(TurnBudget):
    """Keeps what was asked for."""

    def __init__(self) -> None:
        super().__init__(TURN_BYTES)
        self.asked: list[int] = []

    def take(self, units: int) -> bool:
        self.asked.append(units)
        return super().take(units)


def test_handshake_takes_the_budget_of_a_turn_and_a_record_little(context: ssl.SSLContext, run: Run) -> None:
    async def scene() -> None:
        budget = RecordingBudget()
        async with serving(context, budget=budget) as server:
            client = await server.connect()
            await shake_hands(client)
            client.write(client.records(b"x", 1))
            assert await client.read() == b"x"
            assert budget.asked[:2] == [TURN_BYTES, TURN_BYTES]
            budget.asked.clear()
            client.write(client.records(b"x", 1))
            assert await client.read() == b"x"
            assert budget.asked == [3]
            client.abort()

    run(scene())


def test_connection_that_was_paused_decrypts_one_read_at_once(context: ssl.SSLContext, run: Run) -> None:
    async def scene() -> None:
        served: list[Paused] = []

        def serve(place: ConnectionPlace) -> Paused:
            served.append(Paused(place))
            return served[-1]

        async with serving(context, serve=serve) as server:
            client = await server.connect()
            await shake_hands(client)
            await until(lambda: bool(served))
            client.write(client.records(bytes(RECORDS), 1))
            await client.drain()
            for _ in range(RECORDS):  # turns of the loop in which more would be read
                await asyncio.sleep(0)
            served[0].transport.resume_reading()  # type: ignore[attr-defined]  # a transport of TLS
            await until(lambda: sum(map(len, served[0].received)) == RECORDS)
            assert max(map(len, served[0].received)) <= READ_BYTES / RECORD_BYTES + 1
            client.abort()

    run(scene())


def test_certificate_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"none\.pem does not exist"):
        tls_context(Settings(tls_certificate=tmp_path / "none.pem"))
