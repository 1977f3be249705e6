"""`nari.speech.v1`, message by message, and its subprotocol on a real port."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from websockets.asyncio.client import connect

PATH = "/v1/audio/speech/ws"
TEXT = "The quick brown fox jumps over the lazy dog."
AUDIO = {"encoding": "pcm_s16le", "sample_rate": 24_000, "channels": 1}
START = {
    "type": "request.start",
    "model": "Qwen/Qwen3-TTS",
    "voice": "Ada",
    "language": "English",
    "response_format": "pcm",
}


def append(socket: FakeSocket, sequence: int, text: str) -> None:
    socket.put(type="input_text.append", sequence=sequence, text=text)


def audio(socket: FakeSocket) -> list[bytes]:
    return [message for message in socket.sent if isinstance(message, bytes)]


def test_text_is_acknowledged_and_spoken() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(PATH)
            created = await socket.until("session.created")
            assert created == {"type": "session.created", "protocol": "nari.speech.v1", "audio": AUDIO}
            socket.put(**START)
            assert await socket.until("request.configured") == socket.messages[1]
            words = TEXT.split(" ")
            for number, word in enumerate(words):
                append(socket, number, word + " " * (word != words[-1]))
                await socket.until("input_text.ack", number + 1)
            socket.put(type="input_text.end", sequence=len(words))
            assert await socket.hung_up() == 1000
            acks = [(m["event"], m["sequence"]) for m in socket.of("input_text.ack")]
            expected = [("input_text.append", number) for number in range(len(words))]
            assert acks == [*expected, ("input_text.end", len(words))]
            assert b"".join(audio(socket)) == s16le(tone_pcm(TEXT))
            started, done = socket.of("response.started")[0], socket.messages[-1]
            assert started["audio"] == AUDIO
            assert socket.sent.index(json.dumps(started)) < socket.sent.index(audio(socket)[0])
            assert done == {
                "type": "response.done",
                "request_id": started["request_id"],
                "stop_reason": "stop",
                "audio_chunks": len(audio(socket)),
            }

    run(scene())


def test_cancel_stops() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.05)) as bench:
            socket = bench.dial(PATH)
            socket.put(**START)
            append(socket, 0, TEXT * 10)
            await socket.until("response.started")
            await asyncio.sleep(1)
            socket.put(type="response.cancel")
            assert await socket.hung_up() == 1000
            done = socket.messages[-1]
            assert (done["stop_reason"], done["audio_chunks"]) == ("cancelled", len(audio(socket)))

    run(scene())


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([{"type": "input_text.append", "sequence": 0, "text": "Hi"}], "bad_message"),
        ([START | {"voice": "eve"}], "unknown_voice"),
        ([START | {"language": "Klingon"}], "unknown_language"),
        ([START | {"response_format": "mp3"}], "bad_message"),
        ([START, START], "bad_message"),
        ([{**START, "language": "\u0130" * 128}], "bad_message"),  # of twice as many characters in lower case
        ([START, {"type": "input_text.append", "sequence": 1, "text": "Hi"}], "bad_message"),
        ([START, {"type": "input_text.append", "sequence": "0", "text": 5}], "bad_message"),
        ([START, {"type": "input_text.append", "sequence": 0, "text": "x" * 5000}], "text_too_long"),
        ([START, {"type": "input_text.end", "sequence": 0}], "empty_text"),
        ([START, {"type": "nothing"}], "bad_message"),
    ],
)
def test_errors_end_the_socket(messages: list[dict[str, Any]], code: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(PATH)
            for message in messages:
                socket.put(**message)
            assert await socket.hung_up() == 1008
            error = socket.messages[-1]
            assert error["type"] == "error"
            assert error["error"]["code"] == code

    run(scene())


async def test_subprotocol_is_confirmed_to_clients_that_offer_it() -> None:
    async with gateway() as served:
        address = f"ws://127.0.0.1:{served.port}"
        async with connect(address + PATH, subprotocols=["other", "nari.speech.v1"]) as socket:  # type: ignore[list-item]  # plain texts work
            assert socket.subprotocol == "nari.speech.v1"
        async with connect(address + PATH) as socket:
            assert socket.subprotocol is None
            assert json.loads(await socket.recv())["type"] == "session.created"
