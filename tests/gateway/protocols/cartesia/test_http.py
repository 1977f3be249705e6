"""Cartesia over plain HTTP on a real port: bytes, events and voices."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway

from .cartesia_client import FORMAT

TEXT = "The quick brown fox."
HEADERS = {"X-API-Key": "any", "Cartesia-Version": "2026-03-01"}


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        yield session


def url(served: Gateway, path: str) -> str:
    return f"http://127.0.0.1:{served.port}{path}"


def body(**fields: Any) -> dict[str, Any]:
    return {
        "model_id": "sonic-3",
        "transcript": TEXT,
        "voice": {"mode": "id", "id": "ada"},
        "output_format": FORMAT,
        "language": "en",
        **fields,
    }


async def test_text_is_spoken(client: aiohttp.ClientSession) -> None:
    async with gateway() as served, client.post(url(served, "/tts/bytes"), json=body()) as answer:
        assert (answer.status, answer.content_type) == (200, "audio/pcm")
        assert await answer.read() == s16le(tone_pcm(TEXT))


@pytest.mark.parametrize(
    ("wanted", "content_type", "begin"),
    [
        ({"container": "wav", "encoding": "pcm_s16le", "sample_rate": 44_100}, "audio/wav", b"RIFF"),
        ({"container": "wav", "encoding": "pcm_f32le", "sample_rate": 24_000}, "audio/wav", b"RIFF"),
        ({"container": "wav", "encoding": "pcm_alaw", "sample_rate": 8000}, "audio/wav", b"RIFF"),
        ({"container": "mp3", "sample_rate": 44_100, "bit_rate": 128_000}, "audio/mpeg", b"\xff"),
        ({"container": "raw", "encoding": "pcm_f32le", "sample_rate": 44_100}, "audio/pcm", b""),
        ({"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}, "audio/basic", b""),
    ],
)
async def test_formats(client: aiohttp.ClientSession, wanted: dict[str, Any], content_type: str, begin: bytes) -> None:
    async with (
        gateway(encoder=PacketEncoder) as served,
        client.post(url(served, "/tts/bytes"), json=body(output_format=wanted)) as answer,
    ):
        assert answer.content_type == content_type
        audio = await answer.read()
        assert audio.startswith(begin)
        assert len(audio) > 1000


def events(stream: str) -> list[dict[str, Any]]:
    found = []
    for event in stream.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        fields = json.loads(data.removeprefix("data: "))
        assert name == f"event: {fields['type']}"
        found.append(fields)
    return found


@pytest.mark.parametrize("context", [{"context_id": "mine"}, {}])
async def test_events_carry_audio_and_words(client: aiohttp.ClientSession, context: dict[str, str]) -> None:
    wanted = body(add_timestamps=True, **context)
    async with gateway() as served, client.post(url(served, "/tts/sse"), json=wanted) as answer:
        assert answer.content_type == "text/event-stream"
        found = events(await answer.text())
    assert {event.get("context_id") for event in found} == {context.get("context_id")}
    audio = b"".join(base64.b64decode(event["data"]) for event in found if event["type"] == "chunk")
    assert audio == s16le(tone_pcm(TEXT))
    words = [word for event in found if event["type"] == "timestamps" for word in event["word_timestamps"]["words"]]
    assert words == TEXT.split()
    assert [event["done"] for event in found] == [False] * (len(found) - 1) + [True]
    assert found[-1]["type"] == "done"


async def test_events_without_words(client: aiohttp.ClientSession) -> None:
    async with gateway() as served, client.post(url(served, "/tts/sse"), json=body()) as answer:
        assert {event["type"] for event in events(await answer.text())} == {"chunk", "done"}


@pytest.mark.parametrize(
    ("path", "fields", "status", "code"),
    [
        ("/tts/bytes", {"voice": "eve"}, 404, "voice_not_found"),
        ("/tts/bytes", {"output_format": {"container": "ogg", "sample_rate": 8000}}, 400, "unsupported_format"),
        ("/tts/sse", {"output_format": {"container": "mp3", "sample_rate": 44_100}}, 400, "unsupported_format"),
        ("/tts/bytes", {"transcript": None}, 400, "bad_message"),
        ("/tts/bytes", {"transcript": " "}, 400, "empty_text"),
    ],
)
async def test_refusals_have_the_shape_of_the_service(
    client: aiohttp.ClientSession, path: str, fields: dict[str, Any], status: int, code: str
) -> None:
    async with gateway() as served, client.post(url(served, path), json=body(**fields)) as answer:
        assert answer.status == status
        error = await answer.json()
        assert (error["status_code"], error["error_code"]) == (status, code)
        assert {"title", "message", "request_id"} <= set(error)


async def test_key_is_read_from_the_header_of_the_service() -> None:
    async with gateway(keys=(f"ada={hash_key('key-of-ada')}",)) as served, aiohttp.ClientSession() as session:
        for headers, status in (({}, 401), ({"X-API-Key": "wrong"}, 401), ({"X-API-Key": "key-of-ada"}, 200)):
            async with session.post(url(served, "/tts/bytes"), json=body(), headers=headers) as answer:
                assert answer.status == status
                if status == 401:
                    assert (await answer.json())["error_code"] == "unauthorized"
        async with session.get(url(served, "/voices"), params={"api_key": "key-of-ada"}) as answer:
            assert answer.status == 401, "the URL may hold tokens only"


async def test_voices_are_listed_page_by_page(client: aiohttp.ClientSession) -> None:
    async with gateway() as served:
        async with client.get(url(served, "/voices")) as answer:
            everything = await answer.json()
        ids = [voice["id"] for voice in everything["data"]]
        assert "ada" in ids
        assert everything["has_more"] is False
        # As the library goes through the pages: until one is empty.
        paged: list[str] = []
        while True:
            query = {"limit": "1"} | ({"starting_after": paged[-1]} if paged else {})
            async with client.get(url(served, "/voices"), params=query) as answer:
                page = (await answer.json())["data"]
            if not page:
                break
            paged += [voice["id"] for voice in page]
        assert paged == ids
        async with client.get(url(served, "/voices"), params={"ending_before": ids[-1], "limit": "1"}) as answer:
            assert [voice["id"] for voice in (await answer.json())["data"]] == ids[-2:-1]
        async with client.get(url(served, "/voices"), params={"q": "ADA"}) as answer:
            assert [voice["id"] for voice in (await answer.json())["data"]] == ["ada"]


async def test_voice_is_described(client: aiohttp.ClientSession) -> None:
    async with gateway() as served:
        async with client.get(url(served, "/voices/Ada")) as answer:
            voice = await answer.json()
        assert (voice["id"], voice["language"], voice["is_owner"]) == ("ada", "en", False)
        async with client.get(url(served, "/voices/eve")) as answer:
            assert answer.status == 404
            assert (await answer.json())["error_code"] == "voice_not_found"


async def test_failure_cuts_the_stream(client: aiohttp.ClientSession) -> None:
    async with (
        gateway(ToneSynthesizer(ToneScript(fail_frame=5, frame_s=0.01))) as served,
        client.post(url(served, "/tts/sse"), json=body()) as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.text()
