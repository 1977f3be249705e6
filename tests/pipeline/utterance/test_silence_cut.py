"""Silence before the first word, and after the last."""

from __future__ import annotations

from collections.abc import Callable

from fakes.pipeline.echo_engine import EchoEngine
from fakes.pipeline.speech_bench import STORY, SpeechBench, audio_frames
from fakes.virtual_time import run
from voxgate.pipeline.checkpoint.voice_config import FrameLimits
from voxgate.pipeline.interface import FinishReason, SpeechChunk
from voxgate.pipeline.utterance.plan import MAX_TRIMMED_FRAMES


def test_leading_silence_is_cut(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(trim_silence=True, lookahead_frames=4) as b:
            b.codec.silent = lambda number: number < 7
            b.speech.push_text(STORY)
            b.speech.end()
            chunks: list[SpeechChunk] = []
            async for chunk in b.speech:
                chunks.append(chunk)
                # Playback follows what was delivered, which alone brings the rest.
                b.speech.advance(sum(chunk.frames for chunk in chunks))
            made = len(b.codec.frames)
            # The silent frame before the first sound stays.
            assert audio_frames(chunks)[1:] == list(range(7, made))
            assert [chunk.first_frame for chunk in chunks] == [
                sum(chunk.frames for chunk in chunks[:n]) for n in range(len(chunks))
            ]
            words = [word for chunk in chunks for word in chunk.words]
            assert words[-1].end == len(STORY.rstrip())
            assert words[-1].end_ms <= 80 * (made - 6)
            # The codec counts all frames behind the playback position, cut off or heard.
            assert max(b.codec.heard) == made

    run(scene())


def test_leading_silence_is_kept_if_wanted(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.codec.silent = lambda number: number < 7
            chunks = await b.say(STORY)
            assert sum(chunk.frames for chunk in chunks) == len(b.codec.frames)

    run(scene())


def test_silent_speech_is_still_played(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(trim_silence=True) as b:
            b.codec.silent = lambda number: True  # noqa: ARG005 - every frame
            chunks = await b.say("hello.")
            assert sum(chunk.frames for chunk in chunks) == max(1, len(b.codec.frames) - MAX_TRIMMED_FRAMES)
            assert b.speech.finish_reason is FinishReason.END

    run(scene())


def test_speech_that_becomes_silent_is_ended(bench: Callable[..., SpeechBench]) -> None:
    async def scene(limits: FrameLimits) -> tuple[int, FinishReason | None]:
        # Without the limit it would continue to the end of its slot.
        async with bench(engine=EchoEngine(tail=10_000), limits=limits, lookahead_frames=4) as b:
            tokens = len(b.tokenizer.encode_plain("one two three."))
            b.codec.silent = lambda number: number > tokens
            b.speech.push_text("one two three.")
            b.speech.end()
            heard = 0
            async for chunk in b.speech:
                heard += chunk.frames
                b.speech.advance(heard)
            return heard - tokens, b.speech.finish_reason

    guarded = run(scene(FrameLimits(silent_frames=10, frames_per_token=0)))
    assert 10 <= guarded[0] <= 10 + 8
    assert guarded[1] is FinishReason.LENGTH
    assert run(scene(FrameLimits(silent_frames=0, frames_per_token=0)))[0] > 300


def test_pause_in_the_text_does_not_end_speech(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(limits=FrameLimits(silent_frames=3)) as b:
            tokens = len(b.tokenizer.encode_plain(STORY))
            b.codec.silent = lambda number: number < tokens - 1
            await b.say(STORY)
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert b.speech.finish_reason is FinishReason.END

    run(scene())
