"""ElevenLabs' sockets, message by message, against the tone talker in virtual time."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from fakes.bench import Bench
from fakes.packets import s16le
from fakes.sockets import FakeSocket
from fakes.tone import Script, tone_pcm
from fakes.virtual_time import run

MULTI = "/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000"
SINGLE = "/v1/text-to-speech/ada/stream-input?output_format=pcm_24000"
TEXT = "The quick brown fox jumps over the lazy dog. "


def final(context: str, error: str | None = None) -> Any:
    return lambda m: m.get("contextId") == context and m.get("error") == error and (error or m.get("isFinal"))


def heard(socket: FakeSocket, context: str | None) -> bytes:
    return b"".join(
        base64.b64decode(m["audio"]) for m in socket.messages if m.get("audio") and m.get("contextId") == context
    )


def aligned(socket: FakeSocket, context: str | None) -> tuple[str, list[float]]:
    """Text and start times of a context; relative clocks are added up as Pipecat does."""
    text, starts, clock = "", [], 0.0
    for message in socket.messages:
        if message.get("contextId") == context and (alignment := message.get("alignment")):
            text += "".join(alignment["chars"])
            starts += [clock + start for start in alignment["charStartTimesMs"]]
            clock += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
            assert message["normalizedAlignment"] == alignment
    return text, starts


def test_a_turn_as_pipecat_speaks_it() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI + "&auto_mode=true&model_id=eleven_flash_v2_5")
            socket.put(text=" ", context_id="a", voice_settings={"stability": 0.5})
            socket.put(text="One sentence.", context_id="a")
            socket.put(text="Another.", context_id="a")
            socket.put(context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            last = await socket.when(final("a"))
            spoken = "One sentence. Another. "
            assert heard(socket, "a") == s16le(tone_pcm(spoken))
            text, starts = aligned(socket, "a")
            assert text == spoken
            assert starts == sorted(starts)
            assert last == {"isFinal": True, "contextId": "a"}
            assert [m for m in socket.messages if m.get("isFinal")] == [last]
            assert socket.close_code is None

    run(scene())


def test_without_auto_mode_texts_are_tokens() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            for token in ("Wond", "er", "ful"):
                socket.put(text=token, context_id="a")
            socket.put(text="", context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            assert bench.synthesizer.speeches[0].text == "Wonderful"
            assert aligned(socket, "a")[0] == "Wonderful "

    run(scene())


@pytest.mark.parametrize("absolute", [False, True])
def test_the_clock_of_the_alignment(absolute: bool) -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI + f"&sync_alignment={str(absolute).lower()}")
            socket.put(text=TEXT, context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            runs = [m["alignment"] for m in socket.messages if m.get("alignment")]
            assert len(runs) > 3
            lasts = [each["charStartTimesMs"][-1] for each in runs]
            # The tone talker speaks a character in 40 ms.
            expected_ms = TEXT.rindex("dog") * 40
            if absolute:
                assert abs(lasts[-1] - expected_ms) < 300
                assert lasts == sorted(lasts)
            else:
                assert max(lasts) < 1000
                assert abs(aligned(socket, "a")[1][-1] - expected_ms) < 300

    run(scene())


def test_unflushed_text_makes_a_close_a_barge_in() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI + "&auto_mode=true")
            socket.put(text=TEXT * 5, context_id="a")
            await socket.when(lambda m: bool(m.get("audio")))
            sent = len(socket.messages)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            assert len(socket.messages) - sent <= 3
            await asyncio.sleep(5)
            assert socket.messages[-1] == {"isFinal": True, "contextId": "a"}

    run(scene())


def test_a_second_close_is_a_barge_in() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT * 5, context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            await asyncio.sleep(2)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            assert len(heard(socket, "a")) < 3 * 48_000
            socket.put(context_id="a", close_context=True)
            socket.put(context_id="never was", close_context=True)
            await asyncio.sleep(5)
            assert socket.messages[-1] == {"isFinal": True, "contextId": "a"}

    run(scene())


def test_contexts_speak_side_by_side_and_their_names_come_again() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            for turn in (1, 2):
                for id in "ab":
                    socket.put(text=f"I am {id}. ", context_id=id, flush=True)
                    socket.put(context_id=id, close_context=True)
                for id in "ab":
                    await socket.when(final(id), turn)
            for id in "ab":
                assert heard(socket, id) == 2 * s16le(tone_pcm(f"I am {id}. "))

    run(scene())


def test_a_sixth_context_is_refused_and_the_socket_lives() -> None:
    async def scene() -> None:
        async with Bench(slots=8) as bench:
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


def test_keep_alives_open_and_say_nothing() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            for fields in ({"text": ""}, {"text": "", "context_id": "a"}, {"context_id": "a", "flush": True}, {}):
                socket.put(**fields)
            await asyncio.sleep(100)
            assert socket.sent == []
            assert not bench.synthesizer.speeches

    run(scene())


def test_an_unused_context_times_out_and_gives_its_slot_back() -> None:
    async def scene() -> None:
        async with Bench() as bench:
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


def test_speaking_is_no_inactivity() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI + "&inactivity_timeout=2")
            socket.put(text=TEXT * 4, context_id="a", flush=True)
            await socket.when(final("a", "input_timeout_exceeded"))
            assert heard(socket, "a") == s16le(tone_pcm(TEXT * 4))

    run(scene())


def test_close_socket_finishes_what_is_open() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="a")
            socket.put(text=" ", context_id="b")
            socket.put(close_socket=True)
            socket.put(text="Too late.", context_id="c")
            assert await socket.hung_up() == 1000
            assert heard(socket, "a") == s16le(tone_pcm(TEXT))
            assert {m["contextId"] for m in socket.messages} == {"a", "b"}

    run(scene())


def test_close_socket_on_an_idle_one_closes_it() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            socket.put(close_socket=True)
            assert await socket.hung_up() == 1000

    run(scene())


def test_nothing_to_say_is_no_mistake() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=" ", context_id="a")
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            assert socket.messages == [{"isFinal": True, "contextId": "a"}]

    run(scene())


def test_a_failure_in_mid_speech_is_told_and_then_the_end() -> None:
    async def scene() -> None:
        async with Bench(Script(fail_frame=8, frame_s=0.05)) as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="a", flush=True)
            error = await socket.when(final("a", "generation_failed"))
            assert error["message"]
            await socket.when(final("a"))
            assert socket.messages[-1] == {"isFinal": True, "contextId": "a"}
            assert heard(socket, "a")

    run(scene())


def test_a_queue_waited_out() -> None:
    async def scene() -> None:
        async with Bench(slots=1) as bench:
            socket = bench.dial(MULTI)
            socket.put(text="x" * 200, context_id="a", flush=True)
            socket.put(text="Never spoken.", context_id="b", flush=True)
            await socket.when(final("b", "too_many_concurrent_requests"))
            await socket.when(final("b"))
            assert socket.close_code is None
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))

    run(scene())


def test_text_too_long_is_refused_and_what_was_before_goes_on() -> None:
    async def scene() -> None:
        async with Bench() as bench:
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


def test_one_utterance_on_stream_input() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(SINGLE)
            socket.put(text=" ", try_trigger_generation=True, generation_config={"chunk_length_schedule": [50]})
            for word in TEXT.split():
                socket.put(text=word + " ", try_trigger_generation=True)
            socket.put(text="")
            assert await socket.hung_up() == 1000
            assert heard(socket, None) == s16le(tone_pcm(TEXT))
            assert aligned(socket, None)[0] == TEXT
            assert socket.messages[-1] == {"audio": None, "isFinal": True}

    run(scene())


@pytest.mark.parametrize(
    ("script", "sent", "error"),
    [
        (Script(fail_frame=3), [{"text": TEXT}, {"text": ""}], "generation_failed"),
        (Script(), [{"text": TEXT}], "input_timeout_exceeded"),
    ],
)
def test_stream_input_ends_with_an_error(script: Script, sent: list[dict[str, Any]], error: str) -> None:
    async def scene() -> None:
        async with Bench(script) as bench:
            socket = bench.dial(SINGLE)
            for fields in sent:
                socket.put(**fields)
            assert await socket.hung_up() == 1008
            assert [m["error"] for m in socket.messages if "error" in m] == [error]
            assert socket.messages[-1] == {"audio": None, "isFinal": True}

    run(scene())


def test_bad_messages_are_told_and_the_third_closes() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            for message in ("nonsense", '{"text": 5}', "[]"):
                socket.put_raw(message)
            assert await socket.hung_up() == 1008
            assert [m["error"] for m in socket.messages] == ["bad_message"] * 3

    run(scene())


def test_a_reader_who_stops_is_closed_with_1008() -> None:
    async def scene() -> None:
        async with Bench() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT * 10, context_id="a", flush=True)
            await socket.when(lambda m: bool(m.get("audio")))
            socket.stop_reading()
            assert await socket.hung_up() == 1008

    run(scene())
