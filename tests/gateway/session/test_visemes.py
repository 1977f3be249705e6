"""Mouth shapes precede their audio, end with it, and are refused where the voice has none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.gateway.in_process import InProcessGateway, say
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run
from voxgate.pipeline.alignment.visemes import VISEMES

TEXT = "The quick brown fox jumps over the lazy dog. " * 3
PTS = slice(12, 20)
"""Bytes of the header that count the samples before a packet."""


def shape(character: str) -> str:
    return VISEMES[ord(character) % 128 % len(VISEMES)]


def expected(text: str, frame_ms: float = 80.0) -> list[tuple[str, int]]:
    """The shapes of a text of which every frame speaks two characters, the first of which decides."""
    shapes = [(shape(character), int(n * frame_ms)) for n, character in enumerate(text[::2])]
    shapes.append(("sil", int(len(shapes) * frame_ms)))
    return [each for n, each in enumerate(shapes) if not n or each[0] != shapes[n - 1][0]]


def told(socket: FakeSocket, name: str = "a") -> list[tuple[str, int]]:
    messages = [message for message in socket.of("visemes") if message["utterance"] == name]
    assert all(message["visemes"] for message in messages), "no message is empty"
    return [(each["viseme"], each["start_ms"]) for message in messages for each in message["visemes"]]


def in_order(socket: FakeSocket) -> Iterator[tuple[str, Any]]:
    for message in socket.sent:
        if isinstance(message, bytes):
            yield "audio", int.from_bytes(message[PTS], "little") // 24
        else:
            parsed = json.loads(message)
            yield parsed["type"], parsed


@pytest.mark.parametrize("pacing", ["playback", "none"])
@pytest.mark.parametrize("rate", [1.0, 1.25])
@pytest.mark.parametrize("chunk_frames", [1, 3])
def test_shapes_precede_their_audio(pacing: str, rate: float, chunk_frames: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(chunk_frames=chunk_frames, frame_s=0.01)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, visemes=True, pacing=pacing, rate=rate)
            await socket.until("done")
            assert told(socket) == expected(TEXT, 80 / rate)
            sent_ms = -1
            for kind, value in in_order(socket):
                if kind == "audio":
                    sent_ms = value
                elif kind == "visemes":
                    assert value["visemes"][0]["start_ms"] > sent_ms, "a packet begins behind all shapes told later"
            kinds = [kind for kind, _ in in_order(socket)]
            last_audio = len(kinds) - kinds[::-1].index("audio")
            assert "visemes" not in kinds[last_audio:], "the mouth is closed before the last packet"

    run(scene())


def test_shapes_are_told_on_request_only() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            socket.put(type="defaults", visemes=True, format={"codec": "pcm"})
            say(socket, "b", TEXT)
            await socket.until("done", 2)
            assert told(socket, "a") == []
            assert told(socket, "b") == expected(TEXT)

    run(scene())


def test_a_voice_without_shapes_refuses_them() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, voice="bob", visemes=True)
            refused = await socket.until("error")
            assert (refused["code"], refused["param"], refused["retryable"]) == ("unsupported_option", "visemes", False)
            assert "phone table" in refused["message"]
            assert not gateway.synthesizer.speeches, "before the queue"
            say(socket, "b", TEXT, visemes=True)
            await socket.until("done")

    run(scene())


def test_interrupt_stops_shapes() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.01)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, visemes=True)
            await asyncio.sleep(1.234)
            socket.put(type="interrupt", utterance="a")
            await socket.until("interrupted")
            await asyncio.sleep(5)
            kinds = [kind for kind, _ in in_order(socket)]
            assert "visemes" not in kinds[kinds.index("interrupted") :]
            assert told(socket) == expected(TEXT)[: len(told(socket))]
            lookahead_ms = gateway.settings.lookahead_ms + gateway.settings.send_ahead_ms
            assert told(socket)[-1][1] <= 1234 + lookahead_ms + 160, "shapes are ahead by no more than the audio"

    run(scene())


def test_loss_of_the_engine_changes_no_shape() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.01)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, visemes=True)
            await asyncio.sleep(0.5)
            gateway.synthesizer.lose()
            await asyncio.sleep(2)
            await gateway.restart_engine()
            await socket.until("done")
            assert gateway.synthesizer.starts == 2
            assert told(socket) == expected(TEXT)

    run(scene())
