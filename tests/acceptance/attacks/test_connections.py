"""Connections without a key: idle ones, unauthenticated ones, large or malformed requests, foreign host names."""

from __future__ import annotations

import asyncio
import json

import pytest
from fakes.waiting import DEADLINE_S, until

from ..testbed.gateway_process import GatewayProcess, tone_gateway
from ..testbed.keys import key_entry, new_key
from ..testbed.listeners import UNLIMITED, speech_text
from ..testbed.measuring import Figures
from ..testbed.raw_http import IdleConnections, ask, http_request
from ..testbed.raw_websocket import PONG, RawWebSocket, connect, connect_as, frame

OK, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, TOO_LARGE = 200, 400, 401, 403, 413
SOCKETS = 20
PROBE_RESERVE = 64
"""Connections above two for each socket, which probes and new clients may use."""
PROBES = ("/healthz", "/readyz")
LATE_KEY_PATH = "/v1/text-to-speech/ada/stream-input"

# Probes under a flood of idle connections


@pytest.mark.parametrize(
    "request_bytes", [b"", http_request("GET", "/v1/limits", keep_alive=True)], ids=["silent", "idle"]
)
async def test_probes_answer_while_idle_connections_fill_the_gateway(request_bytes: bytes) -> None:
    """Idle connections are given up for new ones, so that neither probes nor clients are refused."""
    async with tone_gateway(sockets=SOCKETS, keys=key_entry("alice", new_key())) as gateway:
        idle = IdleConnections(gateway.port)
        await idle.open(3 * SOCKETS, request_bytes)
        statuses = [(await ask(gateway.port, "GET", path)).status for path in (*PROBES, "/v1/limits")]
        idle.abort()
        assert statuses == [OK] * 3
        assert gateway.log_errors == []


async def test_silent_connections_take_a_bounded_number_of_descriptors(figures: Figures) -> None:
    """Connections count before the end of their first request's head."""
    async with tone_gateway(sockets=SOCKETS) as gateway:
        before = gateway.descriptors
        idle = IdleConnections(gateway.port)
        await idle.open(40 * SOCKETS)
        await ask(gateway.port, "GET", "/healthz")
        held = gateway.descriptors - before
        idle.abort()
        figures.at_most("descriptors", held, 2 * SOCKETS + PROBE_RESERVE + 10)


# Sockets that have not sent their key


async def test_unauthenticated_socket_may_send_few_frames() -> None:
    """Pongs are frames as well, and before the key there is no reason for many."""
    async with tone_gateway(keys=key_entry("alice", new_key())) as gateway:
        client = await connect_as(RawWebSocket, gateway.port, path=LATE_KEY_PATH)
        began_s = client.now()
        while not client.closed.done() and client.now() - began_s < 3:
            client.transport.write(frame(PONG, b"") * 100)
            await asyncio.sleep(0.01)
        assert client.closed.done(), "the socket is still open after 3 s of pongs"
        assert client.closed.result() in (1008, 1006)


async def test_voices_are_not_listed_before_the_key() -> None:
    async with tone_gateway(keys=key_entry("alice", new_key())) as gateway:
        unknown = await connect_as(RawWebSocket, gateway.port, path="/v1/text-to-speech/zz/stream-input")
        unknown.abort()
        assert "ada" not in unknown.body.decode() + unknown.head
        known = await connect_as(RawWebSocket, gateway.port, path=LATE_KEY_PATH)
        known.abort()
        assert unknown.answered.result() == known.answered.result(), "the answer tells which voices exist"


async def test_evicting_unauthenticated_sockets_raises_nothing() -> None:
    """Sockets arrive while the time of the oldest ends."""
    async with tone_gateway(keys=key_entry("alice", new_key())) as gateway:
        clients = [await connect_as(RawWebSocket, gateway.port, path=LATE_KEY_PATH) for _ in range(64)]
        while not clients[0].closed.done():
            clients.append(await connect_as(RawWebSocket, gateway.port, path=LATE_KEY_PATH))
        for client in clients:
            client.abort()
        await gateway.until_no_sockets()
        assert gateway.log_errors == []


# Requests

BODY_BYTES = 65_536
"""Largest body of a request with a text of at most 4,096 characters."""
MALFORMED = {
    "target of two slashes and a bracket, upgrade": (
        b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ),
    "target of two slashes and a bracket": b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    "two Authorization": http_request("GET", "/v1/voices", "Authorization: Bearer a", "Authorization: Bearer b"),
    "two xi-api-key": http_request("GET", "/v1/voices", "xi-api-key: a", "xi-api-key: b"),
    "body that is not gzip": http_request(
        "POST", "/v1/audio/speech", "Content-Type: application/json", "Content-Encoding: gzip", body=b"{}"
    ),
}
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
MALFORMED |= {
    f"two {name}, upgrade": http_request(
        "GET",
        "/v1/speech",
        *UPGRADE,
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"{name}: token, a",
        f"{name}: token, b",
        keep_alive=True,
    )
    for name in ("Authorization", "xi-api-key", "Sec-WebSocket-Protocol")
}


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param((), id="without keys"),
        pytest.param((key_entry("alice", new_key()),), id="with keys"),
    ],
)
async def test_malformed_requests_are_no_errors_of_the_gateway(keys: tuple[str, ...]) -> None:
    async with tone_gateway(keys=keys) as gateway:
        statuses = {name: await _status(gateway, request) for name, request in MALFORMED.items()}
        assert {name: status for name, status in statuses.items() if not _is_refusal(name, status)} == {}
        assert gateway.log_errors == []


async def _status(gateway: GatewayProcess, request: bytes) -> int:
    """The status of the answer; a WebSocket that was accepted is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        writer.write(request)
        async with asyncio.timeout(DEADLINE_S):
            line = await reader.readline()
    finally:
        writer.transport.abort()
    return int(line.split(b" ", 2)[1]) if line else 0


def _is_refusal(name: str, status: int) -> bool:
    # Two lines of credentials are legal; which one counts is the gateway's choice.
    return BAD_REQUEST <= status < 500 or (name.startswith("two ") and status in (101, OK))


async def test_bodies_are_small() -> None:
    async with tone_gateway() as gateway:
        text = json.dumps({"input": "Hello.", "voice": "ada", "padding": "x" * BODY_BYTES}).encode()
        answer = await ask(gateway.port, "POST", "/v1/audio/speech", "Content-Type: application/json", body=text)
        assert answer.status == TOO_LARGE


# Host names of others (DNS rebinding)

FOREIGN_HOSTS = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example")


@pytest.mark.parametrize("path", ["/metrics", "/v1/voices", "/v1/limits"])
async def test_foreign_host_names_read_nothing(path: str) -> None:
    """A page of a name that an attacker resolves to this host would otherwise read the answers as its own."""
    async with tone_gateway() as gateway:
        statuses = {host: (await ask(gateway.port, "GET", path, host=host)).status for host in FOREIGN_HOSTS}
        assert {host: status for host, status in statuses.items() if status not in (BAD_REQUEST, FORBIDDEN, 421)} == {}
        own = (f"127.0.0.1:{gateway.port}", f"localhost:{gateway.port}", "localhost", "[::1]:80")
        assert [(await ask(gateway.port, "GET", path, host=host)).status for host in own] == [OK] * len(own)


# Listeners that vanish


async def test_vanishing_listener_is_no_error() -> None:
    """The connection is reset while a write to it waits."""
    async with tone_gateway(**UNLIMITED) as gateway:
        for number in range(10):
            client = await connect(gateway.port)
            received = client.say(speech_text(60, number), pacing="none")
            await until(lambda received=received: received.playback.arrivals)
            client.transport.pause_reading()
            await asyncio.sleep(0.3)
            client.abort()
        await gateway.until_idle()
        await gateway.until_no_sockets()
        assert gateway.log_errors == []


# Memory


async def test_timed_document_is_streamed(figures: Figures) -> None:
    """An answer of 40 MB does not wait in the gateway."""
    talker = {"frames_per_character": 1.2}
    async with tone_gateway(talker=talker, **UNLIMITED) as gateway:
        await _timed_document(gateway, "Hello.")
        before_bytes = peak_bytes = gateway.memory_bytes
        asking = asyncio.create_task(_timed_document(gateway, speech_text(200)[:4096]))
        while not asking.done():
            peak_bytes = max(peak_bytes, gateway.memory_bytes)
            await asyncio.sleep(0.01)
        document, size = await asking
        assert set(document) == {"audio_base64", "alignment", "normalized_alignment"}
        assert len(document["alignment"]["characters"]) >= 4096
        figures.note("MB of the answer", size / 1e6)
        figures.at_most("MiB more", (peak_bytes - before_bytes) / 2**20, 20)


async def _timed_document(gateway: GatewayProcess, text: str) -> tuple[dict[str, object], int]:
    path = "/v1/text-to-speech/ada/with-timestamps?output_format=pcm_48000"
    body = json.dumps({"text": text}).encode()
    answer = await ask(gateway.port, "POST", path, "Content-Type: application/json", body=body)
    assert answer.status == OK
    return answer.document, len(answer.body)
