"""Connections that misuse TLS: silence, garbage, handshakes that are given up, and much to decrypt at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.certificates import ELLIPTIC, self_signed
from fakes.waiting import until

from ..testbed.gateway_process import GatewayProcess, tone_gateway
from ..testbed.measuring import Figures
from ..testbed.raw_http import ask_raw, http_request
from ..testbed.raw_tls import RawTls, client_context
from ..testbed.raw_websocket import PONG, TEXT, frame, upgrade_request

OK = 200
SOCKETS = 20
PROBE_RESERVE = 64
TURN_MS = 10
TURN_CALLS = 40_000
AT_ONCE = 100
KEYS = {"elliptic": ELLIPTIC, "rsa:2048": ("rsa:2048",), "rsa:4096": ("rsa:4096",)}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Flags of a gateway with TLS."""
    path, key = self_signed(tmp_path_factory.mktemp("certificate"), "gateway")
    return {"tls_certificate": path, "tls_key": key}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """As `certificate`, by the kind of their keys."""
    folder = tmp_path_factory.mktemp("certificates")
    made = {name: self_signed(folder, name.replace(":", ""), kind) for name, kind in KEYS.items()}
    return {name: {"tls_certificate": path, "tls_key": key} for name, (path, key) in made.items()}


async def _probe(gateway: GatewayProcess) -> int:
    return (await ask_raw(gateway.port, http_request("GET", "/healthz"), tls=client_context())).status


async def _says_nothing(_: RawTls) -> None:
    pass


async def _says_half_a_hello(client: RawTls) -> None:
    client.write(client.hello()[:100])


async def _says_hello(client: RawTls) -> None:
    client.write(client.hello())


async def _ends_its_handshake(client: RawTls) -> None:
    client.write(client.hello())
    client.write(await client.finish())


async def _speaks_http(client: RawTls) -> None:
    client.write(http_request("GET", "/healthz"))


async def _sends_a_broken_record(client: RawTls) -> None:
    client.write(b"\x16\x03\x01\x00\x05hello")


HANDSHAKES = [_says_nothing, _says_half_a_hello, _says_hello, _ends_its_handshake]
GARBAGE = [_speaks_http, _sends_a_broken_record]


@pytest.mark.parametrize("begin", HANDSHAKES)
async def test_handshakes_take_a_bounded_number_of_descriptors(
    begin: Callable[[RawTls], Awaitable[None]], certificate: dict[str, Path], figures: Figures
) -> None:
    """A connection counts from its accept on; one that is given up for another one is closed."""
    async with tone_gateway(sockets=SOCKETS, **certificate) as gateway:
        before = gateway.descriptors
        clients = []
        for _ in range(40 * SOCKETS):
            clients.append(client := await RawTls.connect(gateway.port))
            with contextlib.suppress(ConnectionError):
                await begin(client)
        assert await _probe(gateway) == OK
        figures.at_most("descriptors", gateway.descriptors - before, 2 * SOCKETS + PROBE_RESERVE + 10)
        for client in clients:
            client.abort()
        await until(lambda: gateway.descriptors <= before)
        assert gateway.log_errors == []


@pytest.mark.parametrize("begin", HANDSHAKES + GARBAGE)
async def test_handshakes_that_fail_leave_nothing(
    begin: Callable[[RawTls], Awaitable[None]], certificate: dict[str, Path]
) -> None:
    async with tone_gateway(sockets=SOCKETS, **certificate) as gateway:
        assert await _probe(gateway) == OK
        before, tasks = gateway.descriptors, (await gateway.ask("state"))["tasks"]
        for _ in range(5):
            clients = [await RawTls.connect(gateway.port) for _ in range(SOCKETS)]
            await asyncio.gather(*map(begin, clients))
            for client in clients:
                client.abort()
        await until(lambda: gateway.descriptors <= before)
        await gateway.until_state(lambda state: state["tasks"] <= tasks, tasks=True)
        assert await _probe(gateway) == OK
        assert gateway.log_errors == []


# The longest turn


async def _prepare_hellos(clients: list[RawTls]) -> list[bytes]:
    """All but the last byte of every client's first flight is sent."""
    hellos = [client.hello() for client in clients]
    for client, hello in zip(clients, hellos, strict=True):
        client.write(hello[:-1])
    return [hello[-1:] for hello in hellos]


async def _prepare_last_flights(clients: list[RawTls]) -> list[bytes]:
    for client in clients:
        client.write(client.hello())
    return [await client.finish() for client in clients]


def _prepare_records(data: bytes) -> Callable[[list[RawTls]], Awaitable[list[bytes]]]:
    """Records of one byte each for WebSockets that are open."""

    async def prepare(clients: list[RawTls]) -> list[bytes]:
        for client in clients:  # one after the other: a busy machine may take longer for all than a handshake may
            client.write(client.hello())
            client.write(await client.finish() + client.records(upgrade_request(), 1000))
            while not (await client.read()).startswith(b"HTTP/1.1 101"):
                pass
        return [client.records(data, 1) for client in clients]

    return prepare


TURNS: dict[str, Callable[[list[RawTls]], Awaitable[list[bytes]]]] = {
    "first flights": _prepare_hellos,
    "last flights": _prepare_last_flights,
    "pongs in records of one byte": _prepare_records(frame(PONG, b"") * 100),
    "messages in records of one byte": _prepare_records(frame(TEXT, b'{"type":"ping"}') * 50),
}


@pytest.mark.parametrize(
    ("name", "key"),
    [*((name, "elliptic") for name in TURNS), ("first flights", "rsa:2048"), ("first flights", "rsa:4096")],
)
async def test_turns_stay_short(
    name: str, key: str, certificates: dict[str, dict[str, Path]], figures: Figures
) -> None:
    """What a hundred clients send at the same moment is handled in many turns. An RSA key makes signatures slow."""
    flags: dict[str, Any] = {"sockets": 2 * AT_ONCE, **certificates[key]}
    async with tone_gateway(**flags) as gateway:
        clients = [await RawTls.connect(gateway.port) for _ in range(AT_ONCE)]
        data = await TURNS[name](clients)
        await gateway.ask("watch_turns", count_calls=not figures.judge_time)
        for client, piece in zip(clients, data, strict=True):
            client.write(piece)
        assert await _probe(gateway) == OK
        await asyncio.sleep(1)
        turns = await gateway.ask("turns")
        figures.note("turns", turns["turns"])
        figures.time_at_most("longest turn ms", turns["longest_ms"], TURN_MS)
        figures.at_most("calls in a turn", turns["most_calls"], TURN_CALLS)
        for client in clients:
            client.abort()
        assert gateway.log_errors == []
