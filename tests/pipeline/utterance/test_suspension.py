"""An utterance that waits for text gives its slots up and goes on in others as if it had kept them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from fakes.pipeline.echo_engine import END_OF_TEXT, EchoEngine
from fakes.pipeline.speech_bench import STORY, SpeechBench, audio_frames
from fakes.virtual_time import run, settle, turns
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.errors import AtCapacity
from voxgate.pipeline.interface import FinishReason, Prosody, SpeechChunk
from voxgate.pipeline.ipc.slot_tables import Field


def hear(b: SpeechBench) -> tuple[list[SpeechChunk], asyncio.Task[None]]:
    """Listens in a task; returns the growing list of chunks, and the task."""
    chunks: list[SpeechChunk] = []

    async def listen() -> None:
        async for chunk in b.speech:
            chunks.append(chunk)
            b.speech.advance(chunk.first_frame + chunk.frames)

    return chunks, asyncio.create_task(listen())


def test_suspended_utterance_speaks_as_if_it_had_kept_its_slots(bench: Callable[..., SpeechBench]) -> None:
    """Suspended after every fragment: the same tokens in the same order, all in one generation's context."""

    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            chunks, listening = hear(b)
            for word in STORY.split():
                b.speech.push_text(word + " ")
                if b.speech.suspended:
                    assert b.speech.needs_slot
                    b.speech.resume()
                await settle()
                assert b.speech.waiting_for_text
                assert await b.speech.suspend()
                assert b.engine.free_slots == [0]
                assert not b.speech.needs_slot
            b.speech.end()
            assert b.speech.needs_slot
            b.speech.resume()
            await asyncio.wait_for(listening, 60)
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert [frame[0] for frame in b.codec.frames].count(END_OF_TEXT) == 1
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))
            assert [chunk.first_frame for chunk in chunks if chunk.frames] == sorted(
                {chunk.first_frame for chunk in chunks if chunk.frames}
            )
            words = [word.text for chunk in chunks for word in chunk.words]
            assert words == STORY.split()
            assert b.speech.finish_reason is FinishReason.END

    run(scene())


@pytest.mark.parametrize("rate", [0.8, 1.25])
def test_suspended_utterance_has_the_length_of_its_rate(bench: Callable[..., SpeechBench], rate: float) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(rate=rate)) as kept:
            expected = sum(len(chunk.pcm) for chunk in await kept.say(STORY))
        async with bench(engine=EchoEngine(slots=1), prosody=Prosody(rate=rate)) as b:
            chunks, listening = hear(b)
            for word in STORY.split():
                b.speech.push_text(word + " ")
                if b.speech.needs_slot:
                    b.speech.resume()
                await settle()
                assert await b.speech.suspend()
            b.speech.end()
            b.speech.resume()
            await asyncio.wait_for(listening, 60)
            assert sum(len(chunk.pcm) for chunk in chunks) == expected

    run(scene())


def test_frames_of_the_suspended_generation_are_context_of_the_next(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=2)) as b:
            hear(b)
            b.speech.push_text("one two three ")
            await settle()
            made = [list(frame) for frame in b.codec.frames]
            read = b.engine.opened[0].tokens
            assert await b.speech.suspend()
            b.speech.push_text("four five ")
            b.speech.resume()
            await settle()
            second = b.engine.opened[1]
            row = b.engine.tables.control[second.slot]
            begin = row[Field.PREFIX_LEN] + 1
            assert row[Field.PAST_FRAMES] == len(made)
            assert b.engine.tables.prefix[second.slot, begin : begin + len(made), 1:].tolist() == made
            assert b.engine.tables.text[second.slot, :read].tolist() == b.engine.texts[0]
            assert second.text_frames == second.tokens == second.frames > read
            assert row[Field.SEED] == b.speech.seed, "the same generation goes on"

    run(scene())


def test_between_generations_nothing_is_repeated(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("one two")
            b.speech.flush()
            await settle()
            assert await b.speech.suspend()
            b.speech.push_text("three four ")
            assert b.speech.needs_slot
            b.speech.resume()
            b.speech.end()
            await asyncio.wait_for(listening, 60)
            assert b.segments() == ["one two", "three four"]

    run(scene())


def test_end_without_anything_left_to_speak_needs_no_slot(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("one two")
            b.speech.flush()
            await settle()
            assert await b.speech.suspend()
            b.speech.end()
            assert not b.speech.needs_slot
            await asyncio.wait_for(listening, 60)
            assert b.speech.finish_reason is FinishReason.END
        assert b.over == [b.speech]

    run(scene())


def test_flush_while_suspended_ends_the_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("one two ")
            await settle()
            assert await b.speech.suspend()
            b.speech.flush()
            assert b.speech.needs_slot
            b.speech.resume()
            await settle()
            assert b.engine.opened[1].finish_reason is FinishReason.END
            b.speech.push_text("three")
            b.speech.end()
            await asyncio.wait_for(listening, 60)
            assert b.segments()[-1] == "three"

    run(scene())


def test_text_that_cannot_be_spoken_yet_is_kept(bench: Callable[..., SpeechBench]) -> None:
    """A letter may become a word of any kind: it reaches no generation before the suspension."""

    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("o")
            await settle()
            assert await b.speech.suspend()
            b.speech.push_text("ne two")
            b.speech.end()
            assert b.speech.needs_slot
            b.speech.resume()
            await asyncio.wait_for(listening, 60)
            assert b.spoken() == b.tokenizer.encode_plain("one two")

    run(scene())


def test_speech_with_text_left_is_not_suspended(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1), lookahead_frames=2) as b:
            b.speech.push_text("one two three four ")
            await settle()
            assert not await b.speech.suspend()
            assert not b.speech.suspended

    run(scene())


@pytest.mark.parametrize("early_end", [2, 3])
def test_text_of_a_generation_that_ended_early_is_dropped_as_without_suspension(
    bench: Callable[..., SpeechBench], early_end: int
) -> None:
    async def scene() -> None:
        rules = TextRules(segment_tokens=4)
        async with bench(engine=EchoEngine(slots=1, early_end=early_end), rules=rules) as kept:
            expected = [frame[0] for frame in (await kept.say(STORY)) and kept.codec.frames]
        async with bench(engine=EchoEngine(slots=1, early_end=early_end), rules=rules) as b:
            _, listening = hear(b)
            for word in STORY.split(" "):
                b.speech.push_text(word + " ")
                if b.speech.needs_slot:
                    b.speech.resume()
                await settle()
                if b.speech._generations._dropping is not None:
                    assert await b.speech.suspend()
            b.speech.end()
            if b.speech.needs_slot:
                b.speech.resume()
            await asyncio.wait_for(listening, 60)
            assert [frame[0] for frame in b.codec.frames] == expected

    run(scene())


def test_closing_a_suspended_speech_frees_it_once(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("one two ")
            await settle()
            assert await b.speech.suspend()
            await b.speech.aclose()
            await asyncio.wait_for(listening, 60)
            assert b.over == [b.speech]

    run(scene())


def test_closing_while_it_is_being_suspended_frees_the_slot(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("one two ")
            await settle()
            suspending = asyncio.create_task(b.speech.suspend())
            await asyncio.sleep(0)
            await b.speech.aclose()
            await suspending
            await listening
            assert b.engine.free_slots == [0]
            assert b.over == [b.speech]

    run(scene())


def test_resuming_without_a_free_slot_is_refused(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1)) as b:
            _, listening = hear(b)
            b.speech.push_text("one two ")
            await settle()
            assert await b.speech.suspend()
            b.engine.free_slots.clear()
            b.speech.push_text("three ")
            b.speech.resume()
            with pytest.raises(AtCapacity):
                await asyncio.wait_for(listening, 60)

    run(scene())


@pytest.mark.parametrize("turns_before", range(0, 24, 2))
def test_utterance_suspended_anywhere_goes_on_in_the_middle_of_a_word(
    bench: Callable[..., SpeechBench], turns_before: int
) -> None:
    """At any turn of the event loop: before its first frame, amid a generation, between two, and behind the last."""

    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1), rules=TextRules(segment_tokens=4)) as b:
            chunks, listening = hear(b)
            b.speech.push_text(STORY)
            b.speech.end()
            suspensions = 0
            while not listening.done():
                await turns(turns_before + suspensions)  # more each time, so that it makes progress
                if not await b.speech.suspend(anywhere=True):
                    await turns(1)
                    continue
                suspensions += 1
                assert b.engine.free_slots == [0]
                assert b.speech.needs_slot
                assert not b.speech.waiting_for_text
                await settle()
                b.speech.resume()
                await turns(3)
            assert suspensions
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))
            assert [word.text for chunk in chunks for word in chunk.words] == STORY.split()
            assert b.speech.finish_reason is FinishReason.END

    run(scene())


def test_text_that_comes_while_it_is_suspended_amid_speech_follows(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        first, rest = STORY[:20], STORY[20:]
        async with bench(engine=EchoEngine(slots=1), lookahead_frames=2) as b:
            b.speech.push_text(first)
            await settle()
            assert not b.speech.waiting_for_text
            assert not await b.speech.suspend(), "only while it waits for text"
            assert await b.speech.suspend(anywhere=True)
            b.speech.push_text(rest)
            b.speech.flush()
            b.speech.end()
            await settle()
            assert not b.codec.finished
            chunks, listening = hear(b)
            b.speech.resume()
            await asyncio.wait_for(listening, 60)
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))

    run(scene())


def test_utterance_suspended_amid_speech_is_closed_and_frees_its_slot_once(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1), lookahead_frames=2) as b:
            b.speech.push_text(STORY)
            await settle()
            assert await b.speech.suspend(anywhere=True)
            assert not await b.speech.suspend(anywhere=True)
            await b.speech.aclose()
            assert b.engine.free_slots == [0]
            assert b.over == [b.speech]

    run(scene())


def test_audio_of_a_first_frame_that_comes_too_late_is_dropped(bench: Callable[..., SpeechBench]) -> None:
    """The slot of the codec may belong to another utterance by then; the next generation has the frame decoded."""

    async def scene() -> None:
        async with bench(engine=EchoEngine(slots=1, frame_s=1.0)) as b:
            b.codec.slot = 3
            b.speech.push_text(STORY)
            b.speech.end()
            await settle()
            left = b.engine.opened[0]
            assert await b.speech.suspend(anywhere=True)
            b.speech.resume()
            await settle()
            left.on_audio(np.zeros(FRAME_SAMPLES, np.float32))
            assert b.codec.sounds == []

    run(scene())
