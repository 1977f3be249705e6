"""OpenAI's speech endpoint on a real port."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from fakes.waiting import DEADLINE_S, until
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.errors import KeyLimit, Unauthorized
from voxgate.gateway.protocols.openai import refuse
from voxgate.gateway.server import Gateway
from voxgate.pipeline.errors import AtCapacity, VoxgateError

TEXT = "The quick brown fox."
WANTED = {"model": "gpt-4o-mini-tts", "voice": "ada", "input": TEXT, "response_format": "pcm"}


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(served: Gateway) -> str:
    return f"http://127.0.0.1:{served.port}/v1/audio/speech"


async def test_pcm_is_streamed_as_it_is_generated(client: aiohttp.ClientSession) -> None:
    async with gateway() as served, client.post(url(served), json=WANTED) as answer:
        assert (answer.status, answer.content_type) == (200, "audio/pcm")
        assert answer.headers["Cache-Control"] == "no-store"
        assert await answer.read() == s16le(tone_pcm(TEXT))


@pytest.mark.parametrize(
    ("name", "content_type", "magic"),
    [
        ("mp3", "audio/mpeg", b""),
        ("opus", "audio/ogg", b"OggS"),
        ("wav", "audio/wav", b"RIFF"),
        ("flac", "audio/flac", b"fLaC"),
        (None, "audio/mpeg", b""),
    ],
)
async def test_output_formats(client: aiohttp.ClientSession, name: str | None, content_type: str, magic: bytes) -> None:
    wanted = (
        {**WANTED, "response_format": name} if name else {k: v for k, v in WANTED.items() if k != "response_format"}
    )
    async with gateway(encoder=PacketEncoder) as served, client.post(url(served), json=wanted) as answer:
        assert answer.content_type == content_type
        body = await answer.read()
        assert len(body) > 1000
        assert body.startswith(magic)
    if name == "wav":
        with wave.open(io.BytesIO(body)) as sound:
            assert sound.getframerate() == 24_000


async def test_server_sent_events_carry_audio(client: aiohttp.ClientSession) -> None:
    async with gateway() as served, client.post(url(served), json={**WANTED, "stream_format": "sse"}) as answer:
        assert answer.content_type == "text/event-stream"
        events = [json.loads(e.removeprefix(b"data: ")) for e in (await answer.read()).split(b"\n\n") if e]
    *deltas, done = events
    assert {e["type"] for e in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(e["audio"]) for e in deltas) == s16le(tone_pcm(TEXT))
    assert done == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": len(TEXT), "output_tokens": 10, "total_tokens": len(TEXT) + 10},
    }


async def test_default_voice_speaks_without_a_voice(client: aiohttp.ClientSession) -> None:
    synthesizer = ToneSynthesizer()
    wanted = {name: value for name, value in WANTED.items() if name != "voice"}
    async with gateway(synthesizer) as served, client.post(url(served), json=wanted) as answer:
        assert await answer.read() == s16le(tone_pcm(TEXT))
    assert synthesizer.speeches[0].request.voice == synthesizer.default_voice


async def test_null_stands_for_the_default(client: aiohttp.ClientSession) -> None:
    optional = ("model", "voice", "instructions", "response_format", "speed", "stream_format")
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer, encoder=PacketEncoder) as served:
        async with client.post(url(served), json={"input": TEXT, **dict.fromkeys(optional)}) as answer:
            assert (answer.status, answer.content_type) == (200, "audio/mpeg")
            nulls = await answer.read()
        async with client.post(url(served), json={"input": TEXT}) as answer:
            assert await answer.read() == nulls
    assert synthesizer.speeches[0].request.voice == synthesizer.default_voice


async def test_voices_can_be_objects_and_take_instructions(client: aiohttp.ClientSession) -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer) as served:
        wanted = {**WANTED, "voice": {"id": "BOB"}, "instructions": "Sing."}
        async with client.post(url(served), json=wanted) as answer:
            assert answer.status == 200
            await answer.read()
    request = synthesizer.speeches[0].request
    assert (request.voice, request.instructions) == ("bob", "Sing.")


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"voice": "eve"}, "unknown_voice", "voice"),
        ({"response_format": "aac"}, "unsupported_format", "response_format"),
        ({"input": 5}, "bad_message", "input"),
        ({"input": " "}, "empty_text", None),
        ({"input": "x" * 5000}, "text_too_long", None),
        ({"speed": 4}, "unsupported_option", "speed"),
        ({"speed": "fast"}, "bad_message", "speed"),
        ({"voice": 5}, "bad_message", "voice"),
        ({"voice": {"id": 5}}, "bad_message", "voice"),
        ({"response_format": ""}, "unsupported_format", "response_format"),
    ],
)
async def test_foreign_or_malformed_origins_are_refused(
    client: aiohttp.ClientSession, change: dict[str, Any], code: str, param: str | None
) -> None:
    async with gateway() as served, client.post(url(served), json=WANTED | change) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
        assert error["message"]


async def test_missing_key_is_refused_in_openais_shape(client: aiohttp.ClientSession) -> None:
    key = "sha256:" + "0" * 64
    async with gateway(keys=(f"me={key}",)) as served, client.post(url(served), json=WANTED) as answer:
        assert answer.status == 401
        assert (await answer.json())["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Unauthorized("no"), 401, "authentication_error"),
        (KeyLimit("slow", retry_after_ms=1), 429, "rate_limit_error"),
        (AtCapacity("full", retry_after_ms=1), 503, "server_error"),
    ],
)
def test_errors_have_openais_types(error: VoxgateError, status: int, kind: str) -> None:
    reply = refuse(error)
    assert (reply.status, json.loads(reply.body)["error"]["type"]) == (status, kind)


async def test_failure_during_speech_is_no_regular_end(client: aiohttp.ClientSession) -> None:
    failing = ToneSynthesizer(ToneScript(fail_frame=8, frame_s=0.01))
    async with gateway(failing) as served, client.post(url(served), json=WANTED) as answer:
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_body_is_read_only_on_a_reserved_slot() -> None:
    """Bodies that are read at once are bounded by the sockets, and those of one caller by its share of them."""
    head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    async with gateway(sockets=2) as served, asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as client:
        slow = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        for _, writer in slow:
            writer.write(head + b'{"input": "')
        await until(lambda: served._sessions.total_open == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503")
        for _, writer in slow:
            writer.close()
        await until(lambda: served._sessions.total_open == 0)
        async with client.post(url(served), json=WANTED) as spoken:
            assert spoken.status == 200
