"""What ElevenLabs' clients are told when something is refused, fails or takes too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run

from .elevenlabs_client import MULTI, SINGLE, TEXT, aligned, final, heard


def test_sixth_context_is_refused_and_the_socket_stays() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=8) as bench:
            socket = bench.dial(MULTI)
            for id in "abcdef":
                socket.put(text=" ", context_id=id)
            error = await socket.when(final("f", "max_active_conversations"))
            assert error["code"] == 1008
            await socket.when(final("f"))
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            socket.put(text="Room again.", context_id="f", flush=True)
            socket.put(context_id="f", close_context=True)
            await socket.when(final("f"), 2)
            assert heard(socket, "f")

    run(scene())


def test_half_of_a_surrogate_pair_in_a_dictionary_refuses_the_message_alone() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="b", flush=True)
            locator = {"pronunciation_dictionary_id": "\ud800"}
            socket.put(text="Hi.", context_id="a", pronunciation_dictionary_locators=[locator])
            error = await socket.when(lambda message: "error" in message)
            assert (error["code"], "half of a surrogate pair" in error["message"]) == (1008, True)
            socket.put(context_id="b", close_context=True)
            await socket.when(final("b"))
            assert heard(socket, "b") == s16le(tone_pcm(TEXT))

    run(scene())


def test_text_after_close_is_refused_and_the_text_before_it_is_spoken_to_its_end() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            for silent in ("", " "):
                socket.put(text=silent, context_id="a")
            socket.put(text="Too late.", context_id="a")
            error = await socket.when(final("a", "utterance_ended"))
            assert (error["code"], "closed" in error["message"]) == (1008, True)
            await socket.when(final("a"))
            assert heard(socket, "a") == s16le(tone_pcm(TEXT))
            assert [m["error"] for m in socket.messages if m.get("error")] == ["utterance_ended"]
            socket.put(text="Again.", context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"), 2)

    run(scene())


def test_unused_context_times_out_and_releases_its_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI + "&inactivity_timeout=30")
            socket.put(text="Half a sen", context_id="a")
            await asyncio.sleep(25)
            socket.put(text="", context_id="a")
            await asyncio.sleep(25)
            assert bench.synthesizer.open_speeches
            error = await socket.when(final("a", "input_timeout_exceeded"))
            assert "30 seconds" in error["message"]
            await socket.when(final("a"))
            await asyncio.sleep(1)
            assert not bench.synthesizer.open_speeches
            assert socket.close_code is None

    run(scene())


def test_failure_during_speech_sends_an_error_and_the_end_mark() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=8, frame_s=0.05)) as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="a", flush=True)
            error = await socket.when(final("a", "generation_failed"))
            assert error["message"]
            await socket.when(final("a"))
            assert socket.messages[-1] == {"isFinal": True, "contextId": "a"}
            assert heard(socket, "a")

    run(scene())


def test_elapsed_queue_wait_is_refused() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as bench:
            socket = bench.dial(MULTI)
            socket.put(text="x" * 200, context_id="a", flush=True)
            socket.put(text="Never spoken.", context_id="b", flush=True)
            await socket.when(final("b", "too_many_concurrent_requests"))
            await socket.when(final("b"))
            assert socket.close_code is None
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))

    run(scene())


def test_text_too_long_is_refused_and_accepted_text_continues() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="a")
            socket.put(text="x" * 5000, context_id="a")
            socket.put(context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a", "max_character_limit_exceeded"))
            await socket.when(final("a"))
            assert heard(socket, "a") == s16le(tone_pcm(TEXT))
            assert aligned(socket, "a")[0] == TEXT

    run(scene())


@pytest.mark.parametrize(
    ("script", "sent", "error"),
    [
        (ToneScript(fail_frame=3), [{"text": TEXT}, {"text": ""}], "generation_failed"),
        (ToneScript(), [{"text": TEXT}], "input_timeout_exceeded"),
    ],
)
def test_stream_input_ends_with_an_error(script: ToneScript, sent: list[dict[str, Any]], error: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(script) as bench:
            socket = bench.dial(SINGLE)
            for fields in sent:
                socket.put(**fields)
            assert await socket.hung_up() == 1008
            assert [m["error"] for m in socket.messages if "error" in m] == [error]
            assert socket.messages[-1] == {"audio": None, "isFinal": True}

    run(scene())


def test_bad_messages_send_errors_and_the_third_closes() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            for message in ("nonsense", '{"text": 5}', "[]"):
                socket.put_raw(message)
            assert await socket.hung_up() == 1008
            assert [m["error"] for m in socket.messages] == ["bad_message"] * 3

    run(scene())


def test_stopped_reader_is_closed_with_1008() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT * 10, context_id="a", flush=True)
            await socket.when(lambda m: bool(m.get("audio")))
            socket.stop_reading()
            assert await socket.hung_up() == 1008

    run(scene())
