"""Every target against a server that speaks its protocol over a loopback socket."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from fakes.gateway.protocol_server import error_message, fake_gateway, respond
from fakes.waiting import DEADLINE_S
from voxgate.client import SessionLost
from voxgate.loadtest.targets import TARGETS, opener
from voxgate.loadtest.targets.connection import TargetConnection, TargetOptions, TargetRefused, socket_url
from websockets.asyncio.server import ServerConnection, serve

from .fake_connection import LOUD

Talk = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[str]:
    async with serve(talk, "127.0.0.1", 0) as served:
        yield f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}"


async def speak(connection: TargetConnection, text: str = "Hello there.") -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        for word in text.split(" "):
            await connection.send(word + " ")
        await connection.end()
        received = b"".join([pcm async for pcm in connection.audio()])
    await connection.close()
    return received


async def drain(received: AsyncIterator[bytes]) -> None:
    async for _ in received:
        pass


async def message(socket: ServerConnection, **expected: Any) -> dict[str, Any]:
    seen = json.loads(await socket.recv())
    assert {name: seen.get(name) for name in expected} == expected
    return dict(seen)


async def test_every_target_can_be_loaded() -> None:
    for target in TARGETS:
        assert callable(opener(target))


def test_target_urls_keep_the_base_path() -> None:
    assert socket_url("http://h:1", "/v1/x", a="b c") == "ws://h:1/v1/x?a=b+c"
    assert socket_url("https://h/base/", "/v1/x") == "wss://h/base/v1/x"
    assert socket_url("h:1", "/v1/x") == "ws://h:1/v1/x"


@pytest.mark.parametrize("codec", ["pcm", "opus"])
async def test_voxgate_target_speaks(codec: str) -> None:
    async with fake_gateway() as gateway:
        gateway.queue = [2, 1]
        connection = await opener("voxgate")(TargetOptions(gateway.url, codec=codec))
        assert len(await speak(connection, "abc")) >= 3 * 3840
        assert connection.queue_ms is not None
        gateway.script["refuse me "] = [error_message("at_capacity")]
        connection = await opener("voxgate")(TargetOptions(gateway.url))
        with pytest.raises(TargetRefused, match="at_capacity"):
            await speak(connection, "refuse me")
        gateway.refuse = lambda: respond(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "draining", "message": ""})
        with pytest.raises(TargetRefused, match="draining"):
            await opener("voxgate")(TargetOptions(gateway.url))


async def test_voxgate_target_limits_frames_without_pacing() -> None:
    async with fake_gateway() as gateway:
        connection = await opener("voxgate")(TargetOptions(gateway.url, frames=63, paced=False))
        await speak(connection, "abc")
        (start,) = (message for message in gateway.received if message["type"] == "start")
        assert (start["sampling"], start["pacing"]) == ({"max_frames": 63}, "none")
        assert connection.server_ms is not None


async def test_voxgate_target_aborts() -> None:
    async with fake_gateway() as gateway:
        gateway.hold_after = 4
        connection = await opener("voxgate")(TargetOptions(gateway.url))
        await connection.send("a long text " * 20)
        received = connection.audio()
        await anext(received)
        connection.abort()
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(SessionLost):
                await drain(received)
        await connection.close()


async def test_voxgate_target_stalls() -> None:
    async with fake_gateway() as gateway:
        gateway.hold_after = 4
        connection = await opener("voxgate")(TargetOptions(gateway.url))
        await connection.send("a long text " * 20)
        received = connection.audio()
        await anext(received)
        stalling = asyncio.create_task(connection.stall(0.2))
        await asyncio.sleep(0)
        transport = connection._session.transport  # type: ignore[attr-defined]  # of this target
        assert not transport.is_reading()
        await stalling
        assert transport.is_reading()
        await connection.close()
        await connection.stall(10)  # has no effect on a closed connection


async def test_elevenlabs_target_speaks() -> None:
    async def talk(socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path.startswith("/v1/text-to-speech/ada/multi-stream-input?")
        assert socket.request.headers["xi-api-key"] == "k"
        context = (await message(socket, text=" "))["context_id"]
        await message(socket, text="Hello ", context_id=context)
        await message(socket, text="there. ", context_id=context)
        await message(socket, flush=True)
        await message(socket, close_context=True)
        await socket.send(json.dumps({"audio": base64.b64encode(LOUD).decode(), "contextId": context}))
        await socket.send(json.dumps({"isFinal": True, "contextId": context}))
        await socket.wait_closed()

    async with server(talk) as url:
        connection = await opener("elevenlabs")(TargetOptions(url, voice="ada", key="k"))
        assert await speak(connection) == LOUD


@pytest.mark.parametrize(("model", "path", "over"), [("", "/v2/", "SpeechMetadata"), ("v1:x", "/v1/", "Flushed")])
async def test_deepgram_target_speaks(model: str, path: str, over: str) -> None:
    async def talk(socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path.startswith(path + "speak?encoding=linear16")
        await message(socket, type="Speak", text="Hello ")
        await message(socket, type="Speak", text="there. ")
        await message(socket, type="Flush")
        await socket.send(json.dumps({"type": "SpeechStarted"}))
        await socket.send(LOUD)
        await socket.send(json.dumps({"type": over}))
        await socket.wait_closed()

    async with server(talk) as url:
        assert await speak(await opener("deepgram")(TargetOptions(url, model=model))) == LOUD


async def test_deepgram_target_reports_playback_and_errors() -> None:
    async def talk(socket: ServerConnection) -> None:
        await message(socket, type="Interrupt", playback_offset={"type": "time_ms", "value": 700})
        await socket.send(json.dumps({"type": "Error", "code": "AT_CAPACITY"}))
        await socket.wait_closed()

    async with server(talk) as url:
        connection = await opener("deepgram")(TargetOptions(url))
        await connection.interrupt(700)
        with pytest.raises(TargetRefused, match="AT_CAPACITY"):
            await anext(connection.audio())
        await connection.close()


async def test_vllm_omni_target_speaks() -> None:
    async def talk(socket: ServerConnection) -> None:
        await message(socket, type="session.config", response_format="pcm", stream_audio=True, voice="vivian")
        await message(socket, type="input.text", text="Hello ")
        await message(socket, type="input.text")
        await message(socket, type="input.done")
        for index in range(2):
            await socket.send(json.dumps({"type": "audio.start", "sentence_index": index, "sample_rate": 16_000}))
            await socket.send(LOUD)
            await socket.send(json.dumps({"type": "audio.done", "sentence_index": index}))
        await socket.send(json.dumps({"type": "session.done", "total_sentences": 2}))
        await socket.wait_closed()

    async with server(talk) as url:
        connection = await opener("vllm-omni")(TargetOptions(url, voice="vivian"))
        assert await speak(connection) == 2 * LOUD
        assert connection.rate_hz == 16_000


async def test_openai_target_joins_chunks_of_any_size() -> None:
    seen: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        if seen[-1]["input"].startswith("no"):
            return web.Response(status=429)
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (LOUD[:1001], LOUD[1001:]):
            await response.write(part)
            await asyncio.sleep(0)
        return response

    application = web.Application()
    application.add_routes([web.post("/v1/audio/speech", answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        assert await speak(await opener("openai")(TargetOptions(url, voice="ada"))) == LOUD
        assert seen[0] == {"model": "tts-1", "voice": "ada", "input": "Hello there. ", "response_format": "pcm"}
        with pytest.raises(TargetRefused, match="http_429"):
            await speak(await opener("openai")(TargetOptions(url)), "no slot")
    finally:
        await runner.cleanup()
