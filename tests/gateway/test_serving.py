"""Serving until it is told to stop: signals to this process, and starts that fail."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
from fakes.gateways import ask, next_of
from fakes.packets import FakeEncoder, s16le
from fakes.tone import Script, ToneSynthesizer, tone_pcm
from voxgate.gateway.audio_header import unpack
from voxgate.gateway.server import serve
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import EngineError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


async def test_the_first_signal_lets_speech_finish() -> None:
    synthesizer = ToneSynthesizer()
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(serve(Settings(port=0), synthesizer, FakeEncoder, ports.put_nowait))
    port = await ports.get()

    async def hear(text: str) -> bytes:
        audio = b""
        async with connect(f"ws://127.0.0.1:{port}/v1/speech") as socket:
            await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
            await ask(socket, type="text", utterance="a", text=text)
            while True:
                message = await socket.recv()
                if isinstance(message, bytes):
                    audio += unpack(message)[1]
                elif json.loads(message)["type"] == "going_away":
                    await ask(socket, type="end", utterance="a")
                elif json.loads(message)["type"] == "done":
                    return audio

    texts = [f"{i} is it." for i in range(4)]
    heard = asyncio.gather(*(hear(text) for text in texts))
    while len(synthesizer.open_speeches) < 4:
        await asyncio.sleep(0.005)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await heard == [s16le(tone_pcm(text)) for text in texts]
        await serving


async def test_the_second_signal_ends_at_once() -> None:
    synthesizer = ToneSynthesizer()
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(serve(Settings(port=0), synthesizer, FakeEncoder, ports.put_nowait))
    port = await ports.get()
    async with connect(f"ws://127.0.0.1:{port}/v1/speech") as socket:
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await next_of(socket, "started")
        os.kill(os.getpid(), signal.SIGTERM)
        await next_of(socket, "going_away")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await serving
        with pytest.raises(ConnectionClosed):
            await next_of(socket, "none")
        assert socket.close_code == 1012
    assert not synthesizer.open_speeches


async def test_a_model_that_cannot_be_loaded_ends_it() -> None:
    synthesizer = ToneSynthesizer(Script(start_failures=[EngineError("no such checkpoint")]))
    with pytest.raises(EngineError, match="no such checkpoint"):
        await serve(Settings(port=0), synthesizer, FakeEncoder)


async def test_a_voice_that_is_not_there_ends_it() -> None:
    with pytest.raises(ValueError, match="eve"):
        await serve(Settings(port=0, voice="eve"), ToneSynthesizer(), FakeEncoder)
