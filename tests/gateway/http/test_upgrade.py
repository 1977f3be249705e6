"""Sockets on connections that were plain HTTP before, as proxies and clients with a pool ask for them."""

from __future__ import annotations

import asyncio
import json
import ssl
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
import uvloop
from fakes.certificates import self_signed
from fakes.gateway.loopback import gateway
from fakes.waiting import DEADLINE_S
from voxgate.gateway.server import Gateway


def plain_connections(served: Gateway) -> int:
    return len(served._listener._http._server.connections)


async def speak_on_a_used_connection(tmp_path: Path, *, tls: bool) -> None:
    options, trust = {}, None
    if tls:
        certificate, key = self_signed(tmp_path, "gateway")
        options = {"tls_certificate": certificate, "tls_key": key}
        trust = ssl.create_default_context(cafile=str(certificate))
    async with gateway(**options) as served:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{served.port}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust or True)) as client:
            for _ in range(2):
                async with client.get(f"{url}/v1/limits") as answer:
                    assert (await answer.json())["sockets"]["open"] == 0
            assert plain_connections(served) == 1
            async with client.ws_connect(f"{url}/v1/speech", max_msg_size=1 << 20) as socket:
                assert (await socket.receive_json())["type"] == "session"
                assert plain_connections(served) == 0, "the one there was is the socket's now"
                for message in (
                    {"type": "start", "utterance": "a", "format": {"codec": "pcm"}},
                    {"type": "text", "utterance": "a", "text": "Hello."},
                    {"type": "end", "utterance": "a"},
                ):
                    await socket.send_json(message)
                samples, done = 0, {}
                async with asyncio.timeout(DEADLINE_S):
                    while not done:
                        received = await socket.receive()
                        if received.type is aiohttp.WSMsgType.BINARY:
                            samples += int.from_bytes(received.data[2:4], "little")
                        elif (message := json.loads(received.data))["type"] == "done":
                            done = message
                assert samples == done["samples"] > 0


@pytest.mark.parametrize("tls", [False, True])
async def test_connection_that_served_requests_is_upgraded(tmp_path: Path, tls: bool) -> None:
    await speak_on_a_used_connection(tmp_path, tls=tls)


@pytest.mark.parametrize("tls", [False, True])
def test_write_timeout_holds_under_uvloop(tmp_path: Path, tls: bool) -> None:
    uvloop.run(speak_on_a_used_connection(tmp_path, tls=tls))


async def test_upgrade_is_refused_as_on_a_new_connection() -> None:
    async with gateway() as served, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{served.port}"
        await (await client.get(f"{url}/healthz")).read()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"{url}/v1/text-to-speech/nobody/stream-input")
        assert refused.value.status == HTTPStatus.NOT_FOUND
        async with client.get(f"{url}/v1/limits") as answer:
            assert (await answer.json())["sockets"]["open"] == 0


async def test_request_without_upgrade_gets_426() -> None:
    async with gateway() as served, aiohttp.ClientSession() as client:
        for headers in ({}, {"Upgrade": "h2c", "Connection": "Upgrade"}):
            async with client.get(f"http://127.0.0.1:{served.port}/v1/speech", headers=headers) as answer:
                assert answer.status == HTTPStatus.UPGRADE_REQUIRED
                assert answer.headers["Upgrade"] == "websocket"
