"""Keys that come with the first message, where a client cannot set headers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from contextlib import ExitStack

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


async def test_the_first_message_may_bring_the_key_and_counts_as_one() -> None:
    async with gateway(keys=KEYS) as served, dial(served, SINGLE) as socket:
        await socket.send(json.dumps({"text": "Hello there. ", "xi_api_key": "key-of-ada"}))
        await socket.send(json.dumps({"text": ""}))
        messages = await rest_of(socket)
        assert any(message.get("audio") for message in messages)
        assert (messages[-1], socket.close_code) == ({"audio": None, "isFinal": True}, 1000)


@pytest.mark.parametrize("first", ['{"text": " ", "xi_api_key": "other"}', '{"text": "Hello."}', "nonsense", b"\x00"])
async def test_without_a_valid_key_nothing_is_spoken(first: str | bytes) -> None:
    async with gateway(keys=KEYS) as served, dial(served, MULTI) as socket:
        await socket.send(first)
        (told,) = await rest_of(socket)
        assert (told["error"], socket.close_code) == ("invalid_api_key", 1008)
        assert len(served._sessions) == 0


async def test_a_key_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "KEY_TIMEOUT_S", 0.05)
    async with gateway(keys=KEYS) as served, dial(served, MULTI) as socket:
        assert await rest_of(socket) == []
        assert socket.close_code == 1008


async def test_a_crowd_without_keys_makes_room_for_who_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "MAX_PENDING", 2)
    async with contextlib.AsyncExitStack() as open_sockets, gateway(keys=KEYS) as served:
        crowd = [await open_sockets.enter_async_context(dial(served, SINGLE)) for _ in range(3)]
        assert await rest_of(crowd[0]) == []
        assert crowd[0].close_code == 1008
        async with dial(served, SINGLE) as socket:
            await socket.send(json.dumps({"text": "Hello there. ", "xi_api_key": "key-of-ada"}))
            await socket.send(json.dumps({"text": ""}))
            assert any(message.get("audio") for message in await rest_of(socket))
        assert await rest_of(crowd[1]) == []


@pytest.mark.parametrize("path", ["/v1/speech", "/v1/speak", "/v2/speak"])
async def test_other_dialects_want_it_in_the_handshake(path: str) -> None:
    async with gateway(keys=KEYS) as served:
        with pytest.raises(InvalidStatus) as refused:
            async with dial(served, path):
                pass
        assert refused.value.response.status_code == 401


async def test_a_handshake_that_came_to_nothing_holds_no_place() -> None:
    async with gateway(keys=KEYS, sockets=1, key_sockets=1) as served:
        key = b"xi-api-key: key-of-ada\r\n"
        upgrade = b"Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        for path, status in ((MULTI.replace("ada", "eve"), b"404"), (MULTI, b"400")):  # no such voice; no challenge
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


async def test_who_goes_before_the_answer_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    client = socket.socket()
    hand_over = ProtocolSniffer._hand_over

    def while_it_goes(doorstep: ProtocolSniffer, head: bytes, more: bool) -> None:
        hand_over(doorstep, head, more)
        # Cut off at the moment that its request was read, and nobody has looked at it yet.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    monkeypatch.setattr(ProtocolSniffer, "_hand_over", while_it_goes)
    async with gateway(sockets=1) as served:
        upgrade = b"Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        challenge = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        client.connect(("127.0.0.1", served.port))
        client.sendall(b"GET /v1/speech HTTP/1.1\r\n%s%s\r\n" % (upgrade, challenge))
        await until(lambda: client.fileno() < 0)
        for _ in range(20):  # the handshake has been dealt with by then
            await asyncio.sleep(0)
        await until(lambda: not served._sessions.total_open)


class Street:
    """Comers by their names, and who of them was sent away."""

    def __init__(self, most: int) -> None:
        self.pending = PendingAuthentication(most)
        self.sent_away: list[str] = []
        self._visits: dict[str, ExitStack] = {}

    def comes(self, *names: str) -> None:
        """The first letter is the address."""
        for name in names:
            visit = self._visits[name] = ExitStack()
            visit.enter_context(self.pending.admit(name[0], lambda name=name: self.sent_away.append(name)))

    def goes(self, name: str) -> None:
        self._visits[name].close()


def test_while_there_is_room_everybody_stays() -> None:
    street = Street(3)
    street.comes("a1", "b1", "c1")
    street.goes("b1")
    street.comes("b2")
    assert street.sent_away == []
    assert len(street.pending) == 3


def test_the_longest_waiting_of_the_largest_crowd_makes_room() -> None:
    street = Street(4)
    street.comes("b1", "a1", "a2", "c1", "a3", "d1")
    assert street.sent_away == ["a1", "a2"]
    street.comes("e1")  # nobody is a crowd any more
    assert street.sent_away == ["a1", "a2", "b1"]


def test_who_was_sent_away_and_goes_frees_nobody_elses_place() -> None:
    street = Street(1)
    street.comes("a1", "b1")
    street.goes("a1")
    assert len(street.pending) == 1
    street.goes("b1")
    assert len(street.pending) == 0
