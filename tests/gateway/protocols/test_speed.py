"""The rate of speech in every protocol, over WebSockets and plain HTTP on a real port."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from fakes.gateway.loopback import ask, dial, gateway, next_of
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneSynthesizer, tone_pcm
from fakes.waiting import DEADLINE_S
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.server import Gateway
from voxgate.pipeline.interface import Prosody
from voxgate.pipeline.prosody.time_stretch import TimeStretch
from websockets.asyncio.client import connect

TEXT = "The quick brown fox jumps."
SPEEDS = [0.5, 0.8, 1.0, 1.25, 2.0]
CARTESIA_FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
RAW = "encoding=linear16&sample_rate=24000"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def spoken(speed: float) -> bytes:
    """What a client gets as 16-bit samples."""
    stretch = TimeStretch(speed)
    return s16le(np.concatenate([stretch.push(tone_pcm(TEXT)), stretch.finish()]))


async def post(client: aiohttp.ClientSession, served: Gateway, path: str, **body: object) -> bytes:
    async with client.post(f"http://127.0.0.1:{served.port}{path}", json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


async def native(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    del client
    async with dial(served) as socket, asyncio.timeout(DEADLINE_S):
        start = {"format": {"codec": "pcm"}, "pacing": "none", "rate": speed}
        await ask(socket, type="start", utterance="a", voice="ada", **start)
        await ask(socket, type="text", utterance="a", text=TEXT)
        await ask(socket, type="end", utterance="a")
        audio, pts = b"", 0
        async for message in socket:
            if isinstance(message, bytes):
                assert int.from_bytes(message[12:20], "little") == pts
                pts += int.from_bytes(message[2:4], "little")
                audio += message[20:]
            elif (found := json.loads(message))["type"] == "done":
                assert found["samples"] == pts == len(audio) // 2
                assert found["frames"] == len(tone_pcm(TEXT)) // 1920
                break
        return audio


async def openai(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    return await post(client, served, "/v1/audio/speech", input=TEXT, voice="ada", response_format="pcm", speed=speed)


async def elevenlabs_http(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    path = "/v1/text-to-speech/ada?output_format=pcm_24000"
    return await post(client, served, path, text=TEXT, voice_settings={"speed": speed, "style": 0.5})


async def elevenlabs(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    del client
    address = f"ws://127.0.0.1:{served.port}/v1/text-to-speech/ada/stream-input?output_format=pcm_24000"
    async with connect(address) as socket, asyncio.timeout(DEADLINE_S):
        await ask(socket, text=" ", voice_settings={"stability": 0.5, "speed": speed})
        await ask(socket, text=TEXT)
        await ask(socket, text="", voice_settings={"speed": 0.6})
        messages = [json.loads(message) async for message in socket]
        last_ms = 0.0
        for message in messages:
            if alignment := message.get("alignment"):
                last_ms += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
        audio = b"".join(base64.b64decode(message["audio"]) for message in messages if message.get("audio"))
        assert last_ms == pytest.approx(len(audio) / 48, abs=2), "characters last as long as the audio"
        return audio


async def elevenlabs_contexts(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    del client
    address = f"ws://127.0.0.1:{served.port}/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000"
    async with connect(address) as socket, asyncio.timeout(DEADLINE_S):
        await ask(socket, text=" ", context_id="c", voice_settings={"speed": speed})
        await ask(socket, text=TEXT, context_id="c", flush=True)
        await ask(socket, close_socket=True)
        messages = [json.loads(message) async for message in socket]
        return b"".join(base64.b64decode(message["audio"]) for message in messages if message.get("audio"))


async def deepgram_http(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    return await post(client, served, f"/v1/speak?model=ada&{RAW}&container=none&speed={speed}", text=TEXT)


async def deepgram(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    del client
    async with connect(f"ws://127.0.0.1:{served.port}/v1/speak?model=ada&{RAW}&speed={speed}") as socket:
        return await turn(socket)


async def deepgram_flux(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    del client
    async with connect(f"ws://127.0.0.1:{served.port}/v2/speak?model=ada&{RAW}") as socket:
        await ask(socket, type="Configure", speed=speed)
        assert (await next_of(socket, "ConfigureSuccess"))["applied"] == {"speed": speed}
        return await turn(socket)


async def turn(socket: Any) -> bytes:
    """Speaks one of Deepgram's turns."""
    await ask(socket, type="Speak", text=TEXT)
    await ask(socket, type="Flush")
    audio = b""
    async with asyncio.timeout(DEADLINE_S):
        async for message in socket:
            if isinstance(message, bytes):
                audio += message
            elif json.loads(message)["type"] == "Flushed":
                break
    return audio


async def cartesia_bytes(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    config = {"speed": speed, "emotion": "calm"}
    options = {"voice": {"mode": "id", "id": "ada"}, "output_format": CARTESIA_FORMAT, "generation_config": config}
    return await post(client, served, "/tts/bytes", transcript=TEXT, **options)


async def cartesia(client: aiohttp.ClientSession, served: Gateway, speed: float) -> bytes:
    del client
    async with connect(f"ws://127.0.0.1:{served.port}/tts/websocket") as socket, asyncio.timeout(DEADLINE_S):
        options = {"voice": "ada", "output_format": CARTESIA_FORMAT, "generation_config": {"speed": speed}}
        await ask(socket, context_id="c", transcript=TEXT, **options)
        audio = b""
        async for message in socket:
            found = json.loads(message)
            if found["type"] != "chunk":
                assert found["type"] == "done", found
                break
            audio += base64.b64decode(found["data"])
        return audio


PROTOCOLS = [
    cartesia_bytes,
    cartesia,
    native,
    openai,
    elevenlabs_http,
    elevenlabs,
    elevenlabs_contexts,
    deepgram_http,
    deepgram,
    deepgram_flux,
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_speed_is_that_of_the_audio(client: aiohttp.ClientSession, protocol: Any) -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer, encoder=PacketEncoder) as served:
        for speed in SPEEDS:
            assert await protocol(client, served, speed) == spoken(speed)
    assert [speech.request.prosody for speech in synthesizer.speeches] == [Prosody(speed) for speed in SPEEDS]


async def test_native_volume_is_passed_on() -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer) as served, dial(served) as socket:
        await ask(socket, type="start", utterance="a", voice="ada", format={"codec": "pcm"}, volume=1.5)
        await ask(socket, type="text", utterance="a", text=TEXT)
        await next_of(socket, "started")
    assert synthesizer.speeches[0].request.prosody == Prosody(volume=1.5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"speed": "slow"}, Prosody(0.8)),
        ({"speed": "fast", "generation_config": {"volume": 0.5}}, Prosody(1.25, 0.5)),
        ({"speed": "fast", "generation_config": {"speed": 0.9, "volume": 2}}, Prosody(0.9, 2)),
        ({"speed": "normal", "generation_config": None}, Prosody()),
    ],
)
async def test_cartesias_words_and_volume(
    client: aiohttp.ClientSession, fields: dict[str, Any], expected: Prosody
) -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer) as served:
        await post(client, served, "/tts/bytes", transcript=TEXT, voice="ada", output_format=CARTESIA_FORMAT, **fields)
    assert synthesizer.speeches[0].request.prosody == expected


@pytest.mark.parametrize("field", ["speed", "volume"])
async def test_cartesia_names_the_range(client: aiohttp.ClientSession, field: str) -> None:
    async with gateway() as served:
        body = {"transcript": TEXT, "voice": "ada", "output_format": CARTESIA_FORMAT, "generation_config": {field: 3}}
        async with client.post(f"http://127.0.0.1:{served.port}/tts/bytes", json=body) as answer:
            assert answer.status == 400
            assert f"generation_config.{field} must be from" in (await answer.json())["message"]


@pytest.mark.parametrize(
    ("field", "value"), [("rate", 0.4), ("rate", 2.1), ("volume", -1), ("volume", 2.5), ("rate", "x")]
)
async def test_native_range_is_named(field: str, value: object) -> None:
    async with gateway() as served, dial(served) as socket:
        await ask(socket, type="start", utterance="a", **{field: value})
        error = await next_of(socket, "error")
        assert (error["code"], error["param"]) == ("bad_message", field)


async def test_interrupt_of_stretched_speech_names_the_text_that_was_heard() -> None:
    async with gateway() as served, dial(served) as socket:
        heard = {}
        for name, rate in (("own", 1.0), ("slow", 0.5)):
            start = {"format": {"codec": "pcm"}, "pacing": "none", "rate": rate}
            await ask(socket, type="start", utterance=name, voice="ada", **start)
            await ask(socket, type="text", utterance=name, text=TEXT)
            await ask(socket, type="end", utterance=name)
            await next_of(socket, "done")
            await ask(socket, type="interrupt", utterance=name, played_ms=round(480 / rate))
            heard[name] = (await next_of(socket, "interrupted"))["text_spoken"]
        assert heard["slow"] == heard["own"] == TEXT[:12]


@pytest.mark.parametrize(("path", "closes"), [("stream-input", True), ("multi-stream-input", False)])
async def test_elevenlabs_context_ends_where_its_speed_is_not_offered(path: str, closes: bool) -> None:
    async with gateway() as served, asyncio.timeout(DEADLINE_S):
        address = f"ws://127.0.0.1:{served.port}/v1/text-to-speech/ada/{path}?output_format=pcm_24000"
        async with connect(address) as socket:
            await ask(socket, text=" ", context_id="c", voice_settings={"speed": 3})
            error = json.loads(await socket.recv())
            assert "voice_settings.speed must be from 0.5 to 2" in error["message"]
            assert json.loads(await socket.recv())["isFinal"]
            if not closes:
                await ask(socket, text=TEXT, context_id="d", flush=True)
                assert json.loads(await socket.recv())["contextId"] == "d"


async def test_null_voice_settings_are_the_defaults(client: aiohttp.ClientSession) -> None:
    async with gateway() as served:
        path = "/v1/text-to-speech/ada?output_format=pcm_24000"
        for given in (None, {}, {"speed": None}):
            assert await post(client, served, path, text=TEXT, voice_settings=given) == s16le(tone_pcm(TEXT))
