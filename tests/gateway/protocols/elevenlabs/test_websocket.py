"""ElevenLabs' sockets, message by message, against the tone talker in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.virtual_time import run

from .elevenlabs_client import MULTI, SINGLE, TEXT, aligned, final, heard


def test_turn_as_pipecat_sends_it() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
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


def test_texts_are_fragments_without_auto_mode() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
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
def test_alignment_times_of_both_modes(absolute: bool) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
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


def test_close_with_unflushed_text_interrupts() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
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


@pytest.mark.parametrize("text", [" ", "\n", "  \n "])
def test_context_of_white_space_ends_at_once_without_audio_and_slot(text: str) -> None:
    """Pipecat gives a service up after three contexts that neither speak nor end."""

    async def scene() -> None:
        async with InProcessGateway(slots=1) as bench:
            socket = bench.dial(MULTI)
            for context in "abc":
                begun_s = asyncio.get_running_loop().time()
                socket.put(text=text, context_id=context, flush=True)
                socket.put(context_id=context, close_context=True)
                await socket.when(final(context))
                assert asyncio.get_running_loop().time() - begun_s < 0.1
            assert bench.synthesizer.speeches == []

    run(scene())


def test_second_close_interrupts() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT * 5, context_id="a", flush=True)
            socket.put(context_id="a", close_context=True)
            await asyncio.sleep(2)
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            lead_s = bench.settings.max_send_ahead_ms / 1000
            assert len(heard(socket, "a")) < (2.2 + lead_s) * 48_000
            socket.put(context_id="a", close_context=True)
            socket.put(context_id="never was", close_context=True)
            await asyncio.sleep(5)
            assert socket.messages[-1] == {"isFinal": True, "contextId": "a"}

    run(scene())


def test_contexts_speak_concurrently_and_ids_can_be_reused() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
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


def test_keep_alive_messages_open_no_context() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            for fields in ({"text": ""}, {"text": "", "context_id": "a"}, {"context_id": "a", "flush": True}, {}):
                socket.put(**fields)
            await asyncio.sleep(100)
            assert socket.sent == []
            assert not bench.synthesizer.speeches

    run(scene())


def test_speaking_context_is_not_idle() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI + "&inactivity_timeout=2")
            socket.put(text=TEXT * 4, context_id="a", flush=True)
            await socket.when(final("a", "input_timeout_exceeded"))
            assert heard(socket, "a") == s16le(tone_pcm(TEXT * 4))

    run(scene())


def test_close_socket_finishes_open_contexts() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=TEXT, context_id="a")
            socket.put(text=" ", context_id="b")
            socket.put(close_socket=True)
            socket.put(text="Too late.", context_id="c")
            assert await socket.hung_up() == 1000
            assert heard(socket, "a") == s16le(tone_pcm(TEXT))
            assert {m["contextId"] for m in socket.messages} == {"a", "b"}

    run(scene())


def test_close_socket_closes_an_idle_socket() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(close_socket=True)
            assert await socket.hung_up() == 1000

    run(scene())


def test_text_without_words_is_no_error() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(MULTI)
            socket.put(text=" ", context_id="a")
            socket.put(context_id="a", close_context=True)
            await socket.when(final("a"))
            assert socket.messages == [{"isFinal": True, "contextId": "a"}]

    run(scene())


def test_one_utterance_on_stream_input() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
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
