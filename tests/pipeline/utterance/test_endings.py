"""How speech ends, and limits of its length."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.pipeline.echo_engine import EchoEngine
from fakes.pipeline.speech_bench import STORY, SpeechBench, audio_frames
from fakes.virtual_time import run, settle
from voxgate.pipeline.checkpoint.voice_config import FrameLimits, TextRules
from voxgate.pipeline.errors import EmptyText
from voxgate.pipeline.interface import FinishReason


def test_finish_reason_is_set_at_the_end(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two three.")
            b.speech.end()
            async for chunk in b.speech:
                assert chunk.frames == 0 or b.speech.finish_reason is None
            assert b.speech.finish_reason is FinishReason.END
            with pytest.raises(StopAsyncIteration):
                await anext(b.speech)

    run(scene())


def test_endless_speech_is_cut_in_proportion_to_text(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        limits = FrameLimits(frames_floor=5, frames_per_token=3)
        async with bench(limits=limits, engine=EchoEngine(tail=10_000)) as b:
            await b.say(STORY)
            assert b.speech.finish_reason is FinishReason.LENGTH
            assert len(b.codec.frames) == 3 * len(b.tokenizer.encode_plain(STORY))

    run(scene())


def test_cut_generation_sets_reason_length(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        engine = EchoEngine(tail=10_000)
        async with bench(limits=FrameLimits(frames_floor=6), engine=engine) as b:
            b.speech.push_text("one")
            b.speech.flush()
            await settle()
            engine._tail = 1
            await b.say("two")
            assert [g.finish_reason for g in engine.opened] == [FinishReason.LENGTH, FinishReason.END]
            assert b.speech.finish_reason is FinishReason.LENGTH

    run(scene())


@pytest.mark.parametrize("max_frames", [1, 2, 7, 12])
def test_max_frames_is_never_exceeded(bench: Callable[..., SpeechBench], max_frames: int) -> None:
    async def scene() -> None:
        async with bench(max_frames=max_frames, rules=TextRules(segment_tokens=4)) as b:
            await b.say(STORY)
            assert len(b.codec.frames) == max_frames
            assert b.speech.finish_reason is FinishReason.LENGTH
            # When the text has ended, the talker ends at its limit by itself.
            assert b.engine.aborted == []

    run(scene())


def test_max_frames_is_not_exceeded_while_text_arrives(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_frames=5) as b:
            b.speech.push_text(STORY)
            chunks = await b.listen()
            assert sum(chunk.frames for chunk in chunks) == 5
            assert b.speech.finish_reason is FinishReason.LENGTH
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_unspoken_text_at_max_frames_sets_reason_length(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        tokens = 1
        async with bench(max_frames=tokens + 2) as b:
            b.speech.push_text("one")
            assert len(b.tokenizer.encode_plain("one")) == tokens
            b.speech.flush()
            await settle()
            assert b.engine.opened[0].finish_reason is FinishReason.END
            await b.say("two")
            assert b.speech.finish_reason is FinishReason.LENGTH

    run(scene())


@pytest.mark.parametrize("text", ["", "  \n "])
def test_ending_without_text_raises_empty_text(bench: Callable[..., SpeechBench], text: str) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text(text)
            with pytest.raises(EmptyText):
                b.speech.end()
            assert await b.listen() == []
            await settle()
            assert b.engine.opened == []
            assert b.over == [b.speech]

    run(scene())


def test_slot_is_released_before_the_last_audio_is_taken(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two.")
            b.speech.end()
            await settle()
            assert b.over == [b.speech]
            assert len(b.engine.free_slots) == 2
            assert audio_frames(await b.listen()) == list(range(len(b.codec.frames)))

    run(scene())


def test_length_limit_can_be_switched_off(
    bench: Callable[..., SpeechBench],
) -> None:
    async def scene(limits: FrameLimits) -> int:
        async with bench(engine=EchoEngine(tail=10_000), limits=limits) as b:
            return sum(chunk.frames for chunk in await b.say("one two three."))

    tokens_3 = run(scene(FrameLimits(frames_floor=5, frames_per_token=3)))
    assert tokens_3 < 40
    # The slot's own limit.
    assert run(scene(FrameLimits(frames_per_token=0))) == 399
