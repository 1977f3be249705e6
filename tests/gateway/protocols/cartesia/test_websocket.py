"""Cartesia's socket, message by message, against the tone talker in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.virtual_time import run

from .cartesia_client import FORMAT, TEXT, URL, heard, of, request, words


def test_turn_as_pipecat_sends_it() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", "One sentence.", max_buffer_delay_ms=0))
            socket.put(**request("a", "Another.", max_buffer_delay_ms=0))
            socket.put(**request("a", "", max_buffer_delay_ms=0, **{"continue": False}))
            done = await socket.when(of("done", "a"))
            spoken = "One sentence. Another. "
            assert heard(socket, "a") == s16le(tone_pcm(spoken))
            assert [word for word, _, _ in words(socket, "a")] == spoken.split()
            assert done == {"type": "done", "context_id": "a", "status_code": 200, "done": True}
            assert {m["type"] for m in socket.messages} == {"chunk", "timestamps", "done"}
            chunk = next(filter(of("chunk", "a"), socket.messages))
            assert (chunk["done"], chunk["status_code"], chunk["flush_id"]) == (False, 206, 1)
            assert chunk["step_time"] >= 0
            assert bench.synthesizer.speeches[0].text == spoken

    run(scene())


def test_turn_as_livekit_sends_it() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            for sentence in ("One sentence. ", "Another. "):
                socket.put(**request("a", sentence, language=None, max_buffer_delay_ms=0))
            socket.put(**request("a", " ", language=None, **{"continue": False}))
            await socket.when(of("done", "a"))
            assert bench.synthesizer.speeches[0].text == "One sentence. Another.  "
            assert [word for word, _, _ in words(socket, "a")] == ["One", "sentence.", "Another."]

    run(scene())


def test_times_are_seconds_of_the_context() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT))
            socket.put(**request("a", "", flush=True))
            socket.put(**request("a", TEXT, **{"continue": False}))
            await socket.when(of("done", "a"))
            found = words(socket, "a")
            assert [word for word, _, _ in found] == TEXT.split() * 2
            starts = [start for _, start, _ in found]
            assert starts == sorted(starts)
            assert all(start <= end for _, start, end in found)
            first_s = len(heard(socket, "a", 1)) / 48_000
            # The tone talker speaks a character in 40 ms.
            expected_s = first_s + TEXT.rindex("dog") * 0.04
            assert starts[-1] == pytest.approx(expected_s, abs=0.3)

    run(scene())


def test_words_are_sent_on_request_only() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT, add_timestamps=False, add_phoneme_timestamps=True, **{"continue": False}))
            await socket.when(of("done", "a"))
            assert {m["type"] for m in socket.messages} == {"chunk", "done"}

    run(scene())


def test_flush_divides_the_audio_and_is_answered() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", "Stay hungry, "))
            socket.put(**request("a", "", flush=True))
            flushed = await socket.when(of("flush_done", "a"))
            assert flushed == {
                "type": "flush_done",
                "context_id": "a",
                "status_code": 206,
                "done": False,
                "flush_done": True,
                "flush_id": 1,
            }
            await asyncio.sleep(30)
            assert bench.admission.active == 0, "no slot is held between turns"
            socket.put(**request("a", "stay foolish.", flush=True))
            await socket.when(of("flush_done", "a"), 2)
            socket.put(**request("a", "", **{"continue": False}))
            await socket.when(of("done", "a"))
            assert heard(socket, "a", 1) == s16le(tone_pcm("Stay hungry, "))
            assert heard(socket, "a", 2) == s16le(tone_pcm("stay foolish."))

    run(scene())


def test_text_behind_a_flush_waits_for_its_turn() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", "First.", flush=True))
            socket.put(**request("a", "Second.", flush=True, **{"continue": False}))
            await socket.when(of("done", "a"))
            kinds = [(m["type"], m.get("flush_id")) for m in socket.messages if m["type"] != "timestamps"]
            firsts, seconds = kinds.index(("flush_done", 1)), kinds.index(("flush_done", 2))
            assert set(kinds[:firsts]) == {("chunk", 1)}
            assert set(kinds[firsts + 1 : seconds]) == {("chunk", 2)}
            assert kinds[seconds + 1 :] == [("done", None)]

    run(scene())


@pytest.mark.parametrize(("delay_ms", "text"), [(None, "A sentence."), (3000, "A sentence."), (0, "A fragm")])
def test_text_is_not_flushed_without_being_asked(delay_ms: int | None, text: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", text + "xyz", max_buffer_delay_ms=delay_ms))
            await asyncio.sleep(5)
            # The tone talker holds back half a frame of an odd number of characters.
            assert len(heard(socket, "a")) == (len(text) + 3) // 2 * 3840
            socket.put(context_id="a", cancel=True)

    run(scene())


@pytest.mark.parametrize("text", ["Even.", "Go!”  ", "行く。"])
def test_sentences_are_spoken_to_their_end_where_the_client_forbids_buffering(text: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", text, max_buffer_delay_ms=0))
            await asyncio.sleep(5)
            assert heard(socket, "a") == s16le(tone_pcm(text if text.endswith(" ") else text + " "))
            socket.put(context_id="a", cancel=True)

    run(scene())


def test_contexts_speak_at_the_same_time_and_ids_can_be_used_again() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            for turn in (1, 2):
                for id in "ab":
                    socket.put(**request(id, f"I am {id}, number {turn}.", **{"continue": False}))
                for id in "ab":
                    await socket.when(of("done", id), turn)
            for id in "ab":
                spoken = [s16le(tone_pcm(f"I am {id}, number {turn}.")) for turn in (1, 2)]
                assert heard(socket, id) == b"".join(spoken)
            firsts = [socket.messages.index(await socket.when(of("done", id))) for id in "ab"]
            assert abs(firsts[0] - firsts[1]) < 5

    run(scene())


def test_options_of_the_first_text_count() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", "", voice="no such voice"))
            socket.put(**request("a", TEXT, voice="ADA"))
            # The library ends a context with its own default voice and format.
            other = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 44_100}
            socket.put(**request("a", "", voice="6ccbfb76", output_format=other, **{"continue": False}))
            await socket.when(of("done", "a"))
            assert not socket.of("error")
            assert heard(socket, "a") == s16le(tone_pcm(TEXT))

    run(scene())


def test_text_after_the_end_is_another_turn_with_its_own_end() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            for text in ("One.", "Two."):
                socket.put(**request("a", text, **{"continue": False}))
            await socket.when(of("done", "a"), 2)
            assert heard(socket, "a") == s16le(tone_pcm("One.")) + s16le(tone_pcm("Two."))

    run(scene())


def test_cancel_stops_and_nothing_follows() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT * 5))
            socket.put(**request("a", "", flush=True))
            socket.put(**request("a", TEXT))
            await socket.when(of("chunk", "a"))
            socket.put(context_id="a", cancel=True)
            socket.put(context_id="a", cancel=True)
            socket.put(context_id="never was", cancel=True)
            await asyncio.sleep(0.1)
            sent = len(socket.messages)
            await asyncio.sleep(10)
            assert len(socket.messages) == sent
            assert bench.admission.active == 0
            socket.put(**request("a", TEXT, **{"continue": False}))
            await socket.when(of("done", "a"))
            assert not socket.of("error")

    run(scene())


def test_context_without_text_ends_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(context_id="a", transcript=" ", flush=True)
            await socket.when(of("done", "a"))
            assert [m["type"] for m in socket.messages] == ["flush_done", "done"]
            socket.put(**request("b", "..."))
            socket.put(**request("b", "", **{"continue": False}))
            await socket.when(of("done", "b"))
            assert not bench.admission.active

    run(scene())


def test_context_id_is_chosen_where_the_client_has_none() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(transcript=TEXT, voice={"id": "ada"}, output_format=FORMAT)
            done = await socket.until("done")
            assert heard(socket, done["context_id"]) == s16le(tone_pcm(TEXT))

    run(scene())


def test_text_that_stays_away_ends_the_context() -> None:
    async def scene() -> None:
        async with InProcessGateway(text_idle_timeout_s=30) as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT))
            await socket.when(of("done", "a"))
            assert heard(socket, "a") == s16le(tone_pcm(TEXT))
            assert bench.admission.active == 0

    run(scene())
