"""Authentication by the first message, slots of failed handshakes, and eviction of unauthenticated sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
from contextlib import ExitStack

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.waiting import DEADLINE_S, until
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.http.sniffer import ProtocolSniffer
from voxgate.gateway.server import Gateway
from voxgate.gateway.transport import handshake
from voxgate.gateway.transport.handshake import PendingAuthentication
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

KEYS = (f"ada={hash_key('key-of-ada')}",)
MULTI = "/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000"
SINGLE = "/v1/text-to-speech/ada/stream-input?output_format=pcm_24000"


def dial(served: Gateway, path: str) -> connect:
    return connect(f"ws://127.0.0.1:{served.port}{path}")


async def rest_of(socket: ClientConnection) -> list[dict[str, object]]:
    """Every message until the gateway closes."""
    messages = []
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                messages.append(json.loads(await socket.recv()))
    return messages


async def test_first_message_may_carry_the_key_and_is_handled_as_a_message() -> None:
    async with gateway(keys=KEYS) as served, dial(served, SINGLE) as socket:
        await socket.send(json.dumps({"text": "Hello there. ", "xi_api_key": "key-of-ada"}))
        await socket.send(json.dumps({"text": ""}))
        messages = await rest_of(socket)
        assert any(message.get("audio") for message in messages)
        assert (messages[-1], socket.close_code) == ({"audio": None, "isFinal": True}, 1000)


@pytest.mark.parametrize("first", ['{"text": " ", "xi_api_key": "other"}', '{"text": "Hello."}', "nonsense", b"\x00"])
async def test_first_message_without_valid_key_closes_the_socket(first: str | bytes) -> None:
    async with gateway(keys=KEYS) as served, dial(served, MULTI) as socket:
        await socket.send(first)
        (error,) = await rest_of(socket)
        assert (error["error"], socket.close_code) == ("invalid_api_key", 1008)
        assert len(served._sessions) == 0


async def test_socket_without_first_message_is_closed_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "KEY_TIMEOUT_S", 0.05)
    async with gateway(keys=KEYS) as served, dial(served, MULTI) as socket:
        assert await rest_of(socket) == []
        assert socket.close_code == 1008


NATIVE = "/v1/speech"


async def test_native_client_may_send_its_key_in_an_auth_message() -> None:
    async with gateway(keys=KEYS) as served, dial(served, f"{NATIVE}?auth=message") as socket:
        await socket.send(json.dumps({"type": "auth", "key": "key-of-ada"}))
        assert json.loads(await socket.recv())["type"] == "session"


@pytest.mark.parametrize("first", ['{"type": "auth", "key": "other"}', '{"type": "ping"}', b"x"])
async def test_native_client_without_a_valid_key_in_its_first_message_is_closed(first: str | bytes) -> None:
    async with gateway(keys=KEYS) as served, dial(served, f"{NATIVE}?auth=message") as socket:
        await socket.send(first)
        (error,) = await rest_of(socket)
        assert (error["type"], error["code"], socket.close_code) == ("error", "unauthorized", 1008)


async def test_refused_socket_takes_no_place_while_its_client_does_not_answer_the_close() -> None:
    async with gateway(keys=KEYS) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            f"GET {NATIVE}?auth=message HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes.fromhex("818000000000") * 3)  # masked and empty
        await reader.readuntil(b"unauthorized")
        await until(lambda: served._listener._pool.serving == 0)
        assert served._listener._pool.open == 1
        async with asyncio.timeout(DEADLINE_S):
            assert b"\x03\xf0unauthorized" in await reader.read(), "the close frame arrives, though much was unread"
        writer.close()


async def test_native_client_that_announces_no_auth_message_is_refused_at_once() -> None:
    async with gateway(keys=KEYS) as served:
        with pytest.raises(InvalidStatus) as refused:
            async with dial(served, NATIVE):
                pass
        assert refused.value.response.status_code == 401


@pytest.mark.parametrize(
    ("offered", "confirmed"),
    [
        (["voxgate.v1"], "voxgate.v1"),
        (["voxgate.v1", "token", "key-of-ada"], "voxgate.v1"),
        (["token", "key-of-ada", "voxgate.v1"], "voxgate.v1"),
        (["token", "key-of-ada"], "token"),
    ],
)
async def test_native_subprotocol_is_confirmed_beside_a_key(offered: list[str], confirmed: str) -> None:
    in_header = {} if "token" in offered else {"Authorization": "Bearer key-of-ada"}
    subprotocols = [*map(Subprotocol, offered)]
    async with gateway(keys=KEYS) as served:
        url = f"ws://127.0.0.1:{served.port}{NATIVE}"
        async with connect(url, subprotocols=subprotocols, additional_headers=in_header) as socket:
            assert socket.subprotocol == confirmed
            assert json.loads(await socket.recv())["type"] == "session"


async def test_pending_sockets_are_evicted_for_a_client_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "MAX_PENDING", 2)
    async with contextlib.AsyncExitStack() as open_sockets, gateway(keys=KEYS) as served:
        pending = [await open_sockets.enter_async_context(dial(served, SINGLE)) for _ in range(3)]
        assert await rest_of(pending[0]) == []
        assert pending[0].close_code == 1008
        async with dial(served, SINGLE) as socket:
            await socket.send(json.dumps({"text": "Hello there. ", "xi_api_key": "key-of-ada"}))
            await socket.send(json.dumps({"text": ""}))
            assert any(message.get("audio") for message in await rest_of(socket))
        assert await rest_of(pending[1]) == []


async def test_client_without_valid_key_does_not_learn_which_voices_exist() -> None:
    async with gateway(keys=KEYS) as served:
        answers = []
        for voice in ("ada", "unknown"):
            async with dial(served, MULTI.replace("ada", voice)) as socket:
                await socket.send('{"text": " ", "xi_api_key": "other"}')
                answers.append((await rest_of(socket), socket.close_code))
        assert answers[0] == answers[1]


async def test_unknown_voice_is_refused_after_the_key_was_checked() -> None:
    async with gateway(keys=KEYS) as served, dial(served, MULTI.replace("ada", "unknown")) as socket:
        await socket.send('{"text": " ", "xi_api_key": "key-of-ada"}')
        (error,) = await rest_of(socket)
        assert "unknown" in str(error["message"])
        assert socket.close_code == 1008
    await until(lambda: not served._sessions.total_open)


async def answer_to(served: Gateway, request_line: bytes, *headers: bytes) -> bytes:
    """The status line that answers a handshake, or nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"\r\n".join((request_line, *UPGRADE, *headers, b"", b"")))
    async with asyncio.timeout(DEADLINE_S):
        line = await reader.readline()
    writer.transport.abort()
    return line


UPGRADE = (
    b"Host: a",
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
SPEECH = b"GET /v1/speech HTTP/1.1"
KEY = b"xi-api-key: key-of-ada"


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        (b"GET //[ HTTP/1.1", (), b"400"),
        (b"GET http://[/v1/speech HTTP/1.1", (), b"400"),
        (SPEECH, (KEY, KEY), b"400"),
        (SPEECH, (b"Authorization: Bearer a", b"Authorization: Bearer b"), b"400"),
        (SPEECH, (KEY, b"Host: b"), b"400"),
        (SPEECH, (KEY, b"Origin: http://a", b"Origin: http://a"), b"403"),
        (SPEECH, (b"Sec-WebSocket-Protocol: token", b"Sec-WebSocket-Protocol: key-of-ada"), b"101"),
        (b"GET /v1/speech?token=\xff HTTP/1.1", (), b""),
        (SPEECH, (b"xi-api-key: \xff\xfe",), b"401"),
    ],
)
async def test_malformed_handshake_is_refused_without_a_traceback(
    line: bytes, headers: tuple[bytes, ...], status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(keys=KEYS) as served:
        assert status in await answer_to(served, line, *headers)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_defect_of_a_handshake_is_answered_and_logged_a_few_times_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("scripted")

    async with gateway(keys=KEYS) as served:
        monkeypatch.setattr(served._listener._access, "check_origin", fail)
        for _ in range(5):
            assert b"500" in await answer_to(served, SPEECH, KEY)
        assert served._sessions.total_open == 0
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (len(errors), sum(bool(record.exc_info) for record in errors)) == (1, 1)


async def test_pending_sockets_behind_a_proxy_are_counted_by_the_forwarded_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake, "MAX_PENDING", 3)

    async with contextlib.AsyncExitStack() as sockets, gateway(keys=KEYS, trusted_proxies=("127.0.0.1",)) as served:

        async def pending(address: str) -> ClientConnection:
            url = f"ws://127.0.0.1:{served.port}{SINGLE}"
            return await sockets.enter_async_context(connect(url, additional_headers={"X-Forwarded-For": address}))

        one = await pending("198.51.100.1")
        flood = [await pending("203.0.113.9") for _ in range(5)]
        assert [await rest_of(socket) for socket in flood[:3]] == [[], [], []]
        await one.send(json.dumps({"text": "Hello there. ", "xi_api_key": "key-of-ada"}))
        await one.send(json.dumps({"text": ""}))
        assert any(message.get("audio") for message in await rest_of(one))


@pytest.mark.parametrize("path", ["/v1/speech", "/v1/speak", "/v2/speak"])
async def test_other_protocols_require_the_key_in_the_handshake(path: str) -> None:
    async with gateway(keys=KEYS) as served:
        with pytest.raises(InvalidStatus) as refused:
            async with dial(served, path):
                pass
        assert refused.value.response.status_code == 401


async def test_failed_handshake_releases_its_slot() -> None:
    async with gateway(keys=KEYS, sockets=1, key_sockets=1) as served:
        key = b"xi-api-key: key-of-ada\r\n"
        upgrade = b"Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        for path, status in ((MULTI.replace("ada", "eve"), b"404"), (MULTI, b"400")):  # unknown voice; no challenge
            challenge = b"" if status == b"400" else b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET %s HTTP/1.1\r\n%s%s%s\r\n" % (path.encode(), upgrade, challenge, key))
            async with asyncio.timeout(DEADLINE_S):
                assert status in await reader.readline()
                await reader.read()
            writer.close()
        headers = {"xi-api-key": "key-of-ada"}
        url = f"ws://127.0.0.1:{served.port}/v1/speech"
        for _ in range(2):
            async with connect(url, additional_headers=headers):
                with pytest.raises(InvalidStatus) as refused:
                    async with connect(url, additional_headers=headers):
                        pass
                assert refused.value.response.status_code == 429
            await until(lambda: not served._sessions.total_open)


async def test_client_disconnecting_before_handshake_releases_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    client = socket.socket()
    hand_over = ProtocolSniffer._hand_over

    def disconnect_after_hand_over(sniffer: ProtocolSniffer, head: bytes, more: bool) -> None:
        hand_over(sniffer, head, more)
        # The client resets the connection when its request was read and not answered yet.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    monkeypatch.setattr(ProtocolSniffer, "_hand_over", disconnect_after_hand_over)
    async with gateway(sockets=1) as served:
        upgrade = b"Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        challenge = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        client.connect(("127.0.0.1", served.port))
        client.sendall(b"GET /v1/speech HTTP/1.1\r\n%s%s\r\n" % (upgrade, challenge))
        await until(lambda: client.fileno() < 0)
        for _ in range(20):  # turns of the loop in which the handshake is answered
            await asyncio.sleep(0)
        await until(lambda: not served._sessions.total_open)


class Pending:
    """Unauthenticated sockets by name; the first letter is the address. Records evictions."""

    def __init__(self, limit: int) -> None:
        self.pending = PendingAuthentication(limit)
        self.evicted: list[str] = []
        self._entries: dict[str, ExitStack] = {}

    def admit(self, *names: str) -> None:
        for name in names:
            entry = self._entries[name] = ExitStack()
            entry.enter_context(self.pending.admit(name[0], lambda name=name: self.evicted.append(name)))

    def leave(self, name: str) -> None:
        self._entries[name].close()


def test_no_socket_is_evicted_below_the_limit() -> None:
    sockets = Pending(3)
    sockets.admit("a1", "b1", "c1")
    sockets.leave("b1")
    sockets.admit("b2")
    assert sockets.evicted == []
    assert len(sockets.pending) == 3


def test_oldest_socket_of_the_busiest_address_is_evicted() -> None:
    sockets = Pending(4)
    sockets.admit("b1", "a1", "a2", "c1", "a3", "d1")
    assert sockets.evicted == ["a1", "a2"]
    sockets.admit("e1")  # every address holds one socket: the oldest one is evicted
    assert sockets.evicted == ["a1", "a2", "b1"]


def test_evicted_socket_that_leaves_frees_no_other_place() -> None:
    sockets = Pending(1)
    sockets.admit("a1", "b1")
    sockets.leave("a1")
    assert len(sockets.pending) == 1
    sockets.leave("b1")
    assert len(sockets.pending) == 0


async def test_pooled_sockets_that_nothing_reads_stay_open_between_utterances() -> None:
    async with (
        gateway(ping_interval_s=0.05, ping_timeout_s=0.05) as served,
        # This library answers pings only while a message is awaited.
        aiohttp.ClientSession(f"ws://127.0.0.1:{served.port}") as client,
        client.ws_connect("/tts/websocket") as cartesia,
        client.ws_connect("/v1/speak?encoding=linear16") as deepgram,
        client.ws_connect("/v1/speech"),
    ):
        await until(lambda: len(served._sessions) == 2)  # the last one was closed, which had the least time
        await deepgram.send_json({"type": "Speak", "text": "Hello."})
        await deepgram.send_json({"type": "Flush"})
        async with asyncio.timeout(DEADLINE_S):
            while (message := await deepgram.receive()).type is not aiohttp.WSMsgType.BINARY:
                assert message.type is aiohttp.WSMsgType.TEXT
        assert not cartesia.closed
        await cartesia.send_json({"context_id": "a", "transcript": ""})
        assert (await cartesia.receive_json())["type"] == "done"
