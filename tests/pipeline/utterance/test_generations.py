"""Where one generation ends and the next begins."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from fakes.pipeline.echo_engine import EchoEngine
from fakes.pipeline.speech_bench import STORY, SpeechBench, audio_frames
from fakes.virtual_time import run, settle
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.interface import FinishReason
from voxgate.pipeline.ipc.slot_tables import Field


def test_text_without_limit_is_one_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            await b.say(STORY)
            assert b.segments() == [STORY]

    run(scene())


def test_generation_ends_at_first_sentence_end_after_limit(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4)) as b:
            await b.say(STORY)
            assert len(b.segments()) > 1
            assert " ".join(b.segments()) == STORY
            assert all(segment[-1] in ".!?" for segment in b.segments())
            assert all(len(text) >= 4 for text in b.engine.texts[:-1])

    run(scene())


def test_full_slot_is_followed_by_another_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(text=5)) as b:
            await b.say(STORY)
            assert {len(text) for text in b.engine.texts[:-1]} == {5}
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())


def test_flush_ends_the_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two")
            b.speech.flush()
            await settle()
            # The flushed text is spoken to its end without more text.
            assert b.engine.opened[0].finish_reason is FinishReason.END
            await b.say("three four")
            assert b.segments() == ["one two", "three four"]

    run(scene())


def test_each_of_several_flushes_makes_a_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            for word in ("one", "two", "three"):
                b.speech.push_text(word)
                b.speech.flush()
            b.speech.end()
            await b.listen()
            assert b.segments() == ["one", "two", "three"]

    run(scene())


def test_flush_without_text_has_no_effect(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.flush()
            b.speech.push_text("one two")
            b.speech.flush()
            b.speech.flush()
            b.speech.end()
            await b.listen()
            assert b.segments() == ["one two"]

    run(scene())


PARTS = ("one two three four", " five six seven.", " eight nine", None, " ten eleven twelve")
"""A text with a flush in it (None)."""
SPOKEN = [(0, "one two three ten eleven twelve"), (4, "one two three eight nine ten eleven twelve")]
"""What generations of three frames speak of it, by `segment_tokens`."""


@pytest.mark.parametrize("pauses", itertools.product([False, True], repeat=len(PARTS)))
@pytest.mark.parametrize(("segment_tokens", "spoken"), SPOKEN)
def test_speech_that_ends_early_does_not_depend_on_when_text_arrives(
    bench: Callable[..., SpeechBench], pauses: tuple[bool, ...], segment_tokens: int, spoken: str
) -> None:
    """The rest of a generation's text is not spoken, as if all of it had come before the end."""

    async def scene() -> None:
        async with bench(engine=EchoEngine(early_end=3), rules=TextRules(segment_tokens=segment_tokens)) as b:
            listening = asyncio.create_task(b.listen())
            for part, pause in zip(PARTS, pauses, strict=True):
                if part is None:
                    b.speech.flush()
                else:
                    b.speech.push_text(part)
                if pause:
                    await settle()
            b.speech.end()
            chunks = await listening
            words = " ".join(word.text for chunk in chunks for word in chunk.words)
            assert b.tokenizer.tokenizer.decode(b.spoken()).strip() == spoken
            assert words == "one two three four five six seven. eight nine ten eleven twelve"
            assert b.speech.finish_reason is FinishReason.END

    run(scene())


def test_slot_is_free_while_text_behind_an_early_end_is_awaited(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(engine=EchoEngine(early_end=2)) as b:
            b.speech.push_text("one two three four")
            listening = asyncio.create_task(b.listen())
            await settle()
            assert not b.speech.holds_slot
            assert b.speech.waiting_for_text
            assert not listening.done()
            b.speech.end()
            assert len(audio_frames(await listening)) == 2

    run(scene())


def test_each_generation_has_its_own_seed(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        seeds = []
        async with bench() as b:
            for word in ("one", "two"):
                b.speech.push_text(word)
                await settle()
                b.speech.flush()
                await settle()
                seeds.append(int(b.engine.tables.control[b.engine.opened[-1].slot, Field.SEED]))
                await settle()
            assert b.speech.seed == 1000
            assert seeds == [1000, 1001]

    run(scene())


@pytest.mark.parametrize("slot", [7, None])
@pytest.mark.parametrize("decodes_first", [True, False])
def test_first_frame_decoded_by_engine_is_not_decoded_again(
    bench: Callable[..., SpeechBench], slot: int | None, decodes_first: bool
) -> None:
    """The same holds for the first frame of the second generation, which continues the codec stream."""

    async def scene() -> None:
        engine = EchoEngine(decodes_first=decodes_first)
        async with bench(engine=engine, rules=TextRules(segment_tokens=2)) as b:
            b.codec.slot = slot
            await b.say("one two. three four.")
            asked = slot is not None and decodes_first
            assert len(engine.opened) == 2
            assert b.codec.decoded == [0] * asked
            assert [int(pcm[0]) for pcm in b.codec.sounds] == [7] * asked
            assert len(b.codec.frames) == sum(generation.frames - 1 for generation in engine.opened)

    run(scene())
