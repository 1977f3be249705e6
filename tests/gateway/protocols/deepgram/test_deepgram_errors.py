"""What Deepgram's clients are told when something is refused or fails, in both versions."""

from __future__ import annotations

import asyncio
import json

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.protocols import turn_queue as turns

from .deepgram_client import TEXT, V1, V2, VERSIONS, heard, kinds, speak


@VERSIONS
def test_text_beyond_the_waiting_limit_is_refused_and_the_rest_continues(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MAX_HELD_CHARACTERS", 30)

    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            for text in ("The first one.", "The second one.", "A third that is too much.", "The last."):
                socket.put(type="Speak", text=text)
                socket.put(type="Flush")
            socket.put(type="Close")
            await socket.hung_up()
            assert [error["code"] for error in socket.of("Error")] == ["TEXT_TOO_LONG" if url == V1 else "BIG-0000"]
            said = ("The first one.", "The second one.", "The last.")
            assert heard(socket) == b"".join(s16le(tone_pcm(text)) for text in said)

    run(scene())


def test_v2_speed_is_limited() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V2)
            socket.put(type="Configure", speed=1.0)
            socket.put(type="Configure", speed=0.4)
            assert (await socket.until("ConfigureSuccess"))["applied"] == {"speed": 1.0}
            failure = await socket.until("ConfigureFailure")
            assert failure["code"] == "SPEED_NOT_SUPPORTED"
            assert "from 0.5 to 2" in failure["description"]

    run(scene())


@pytest.mark.parametrize(("url", "end"), [(V1, "Flushed"), (V2, "SpeechMetadata")])
def test_error_is_followed_by_the_end_of_the_turn(url: str, end: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=8, frame_s=0.05)) as bench:
            socket = bench.dial(url)
            speak(socket)
            error = await socket.until("Error")
            assert error["description"]
            await socket.until(end)
            assert kinds(socket).index("Error") < kinds(socket).index(end)
            speak(socket, "x", flush=False)  # one frame: this one does not fail
            socket.put(type="Flush")
            await socket.until(end, 2)

    run(scene())


@pytest.mark.parametrize(("url", "end"), [(V1, "Flushed"), (V2, "SpeechMetadata")])
def test_turn_that_fails_before_its_flush_discards_its_text(url: str, end: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=2, frame_s=0.05)) as bench:
            socket = bench.dial(url)
            speak(socket, flush=False)
            await socket.until("Error")
            speak(socket, flush=False)
            await asyncio.sleep(1)
            assert not socket.of(end)
            assert len(bench.synthesizer.speeches) == 1
            socket.put(type="Flush")
            await socket.until(end)
            assert len(socket.of("Error")) == 1

    run(scene())


@VERSIONS
def test_elapsed_queue_wait_is_refused(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as bench:
            other = bench.connect()
            other.put(type="start", utterance="a", format={"codec": "pcm"})
            other.put(type="text", utterance="a", text="Hold. " * 20)
            await other.until("started")
            socket = bench.dial(url)
            speak(socket)
            error = await socket.until("Error")
            assert "at_capacity" in json.dumps(error).lower()
            await socket.until("Flushed")
            assert socket.close_code is None
            other.put(type="interrupt", utterance="a")
            speak(socket)
            await socket.until("Flushed", 2)
            assert heard(socket)

    run(scene())


@VERSIONS
def test_a_turn_that_is_refused_at_once_has_one_error(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_length=0) as bench:
            other = bench.connect()
            other.put(type="start", utterance="a", format={"codec": "pcm"})
            other.put(type="text", utterance="a", text="Hold.")
            await other.until("started")
            socket = bench.dial(url)
            speak(socket)
            await socket.until("Flushed")
            assert kinds(socket).count("Error") == 1

    run(scene())


@VERSIONS
def test_text_too_long_is_refused_and_the_rest_is_spoken(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            speak(socket, flush=False)
            socket.put(type="Speak", text="x" * 5000)
            socket.put(type="Flush")
            await socket.until("Flushed")
            assert len(socket.of("Error")) == 1
            assert heard(socket) == s16le(tone_pcm(TEXT + " "))
            assert all(m["input_character_count"] == len(TEXT) + 1 for m in socket.of("SpeechMetadata"))

    run(scene())


@VERSIONS
def test_bad_messages_send_errors_and_the_third_closes(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            for message in ("nonsense", '{"type": "Sing"}', '{"text": "x"}'):
                socket.put_raw(message)
            assert await socket.hung_up() == 1008
            assert len(socket.of("Error")) == 3

    run(scene())


@VERSIONS
def test_turn_cut_by_the_drain_deadline_has_its_end_mark(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            speak(socket, TEXT * 4)
            await asyncio.sleep(1)
            bench.sessions[0].abort()
            assert await socket.hung_up() == 1012
            assert kinds(socket)[-1] == "Flushed"

    run(scene())


@VERSIONS
def test_turn_without_flush_ends_by_timeout_and_the_next_is_spoken(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(text_idle_timeout_s=30) as bench:
            socket = bench.dial(url)
            speak(socket, flush=False)
            await socket.until("Flushed")
            assert not bench.synthesizer.open_speeches
            speak(socket)
            await socket.until("Flushed", 2)
            assert heard(socket) == 2 * s16le(tone_pcm(TEXT + " "))
            assert [
                each["code"]
                for each in map(json.loads, (m for m in socket.sent if isinstance(m, str)))
                if each["type"] == "Warning"
            ] == ["TEXT_WAITED_OUT"]

    run(scene())
