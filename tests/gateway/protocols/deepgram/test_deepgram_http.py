"""Deepgram over plain HTTP on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.server import Gateway
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

TEXT = "The quick brown fox."


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(served: Gateway, query: str, version: int = 1) -> str:
    return f"http://127.0.0.1:{served.port}/v{version}/speak?{query}"


@pytest.mark.parametrize("version", [1, 2])
async def test_text_is_spoken(client: aiohttp.ClientSession, version: int) -> None:
    query = "model=ada&encoding=linear16&container=none&sample_rate=24000"
    async with gateway() as served, client.post(url(served, query, version), json={"text": TEXT}) as answer:
        assert (answer.status, answer.content_type) == (200, "audio/pcm")
        assert await answer.read() == s16le(tone_pcm(TEXT))


@pytest.mark.parametrize(
    ("query", "content_type"),
    [
        ("", "audio/mpeg"),
        ("encoding=mp3&bit_rate=32000", "audio/mpeg"),
        ("encoding=opus", "audio/ogg"),
        ("encoding=linear16", "audio/wav"),
        ("encoding=mulaw", "audio/wav"),
        ("encoding=alaw&container=wav", "audio/wav"),
        ("encoding=mulaw&container=none", "audio/basic"),
        ("encoding=flac", "audio/flac"),
        ("encoding=opus&container=ogg", "audio/ogg"),
        ("container=none", "audio/mpeg"),
    ],
)
async def test_encodings(client: aiohttp.ClientSession, query: str, content_type: str) -> None:
    async with (
        gateway(encoder=PacketEncoder) as served,
        client.post(url(served, query), json={"text": TEXT}) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, content_type)
        assert len(await answer.read()) > 1000


@pytest.mark.parametrize(
    ("query", "containers"),
    [
        ("encoding=linear16&container=ogg", "wav or none"),
        ("encoding=mulaw&container=", "wav or none"),
        ("encoding=opus&container=none", "ogg"),
        ("encoding=flac&container=ogg", "none"),
        ("container=wav", "none"),
    ],
)
async def test_container_that_the_encoding_does_not_have_is_refused(
    client: aiohttp.ClientSession, query: str, containers: str
) -> None:
    async with gateway() as served, client.post(url(served, query), json={"text": TEXT}) as answer:
        assert answer.status == 400
        assert answer.headers["dg-error"].endswith(f"must be {containers}")
        assert (await answer.json())["err_code"] == "UNSUPPORTED_FORMAT"


async def test_refusals_have_deepgrams_shape(client: aiohttp.ClientSession) -> None:
    async with gateway() as served:
        async with client.post(url(served, "encoding=aac"), json={"text": TEXT}) as answer:
            assert answer.status == 400
            assert "linear16" in answer.headers["dg-error"]
            assert (await answer.json())["err_code"] == "UNSUPPORTED_FORMAT"
        async with client.post(url(served, "speed=2.5"), json={"text": TEXT}) as answer:
            assert (answer.status, (await answer.json())["err_code"]) == (400, "UNSUPPORTED_OPTION")
        async with client.post(url(served, "speed=fast"), json={"text": TEXT}) as answer:
            assert (answer.status, (await answer.json())["err_code"]) == (400, "BAD_MESSAGE")
        async with client.post(url(served, "speed=1.0&encoding=linear16"), json={"text": TEXT}) as answer:
            assert answer.status == 200
        async with client.get(url(served, "")) as answer:
            assert answer.status == 426


async def test_refused_handshake_names_the_reason() -> None:
    async with gateway(sockets=1) as served:
        address = f"ws://127.0.0.1:{served.port}"
        with pytest.raises(InvalidStatus) as unknown:
            async with connect(f"{address}/v1/speak?model=eve"):
                pass
        assert unknown.value.response.status_code == 400
        assert "ada" in unknown.value.response.headers["dg-error"]
        with pytest.raises(InvalidStatus) as contained:
            async with connect(f"{address}/v1/speak?container=wav"):
                pass
        assert contained.value.response.status_code == 400
        assert contained.value.response.headers["dg-error"] == "container must be none on a socket"
        async with connect(f"{address}/v2/speak?container=none"):
            with pytest.raises(InvalidStatus) as full:
                async with connect(f"{address}/v1/speak"):
                    pass
        assert full.value.response.status_code == 503
        assert full.value.response.headers["Retry-After"] == "2"
        assert full.value.response.headers["dg-request-id"]


async def test_browser_sends_its_key_as_a_subprotocol() -> None:
    async with gateway() as served:
        names = [Subprotocol("token"), Subprotocol("secret")]
        async with connect(f"ws://127.0.0.1:{served.port}/v1/speak", subprotocols=names) as socket:
            assert socket.response is not None
            assert socket.response.headers["Sec-WebSocket-Protocol"] == "token"
