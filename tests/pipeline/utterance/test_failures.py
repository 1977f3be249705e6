"""Failures of the engine, the codec and the prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fakes.pipeline.speech_bench import PROMPT, STORY, SpeechBench, audio_frames
from fakes.virtual_time import run, settle
from voxgate.pipeline.errors import EngineLost, GenerationFailed
from voxgate.pipeline.interface import SpeechChunk


def test_engine_lost_is_raised_after_generated_audio(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two three ")
            await settle()
            made = len(b.codec.frames)
            assert made
            b.engine.die()
            await settle()
            heard: list[SpeechChunk] = []

            async def listen() -> None:
                async for chunk in b.speech:
                    heard.append(chunk)  # noqa: PERF401 - what was heard before the error counts

            with pytest.raises(EngineLost):
                await listen()
            assert audio_frames(heard) == list(range(made))
            assert b.speech.finish_reason is None

    run(scene())


def test_engine_lost_between_generations_is_raised(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one")
            b.speech.flush()
            await settle()
            b.engine.die()
            b.speech.push_text("two ")
            b.speech.end()
            with pytest.raises(EngineLost):
                await b.listen()

    run(scene())


def test_unexpected_failure_raises_generation_failed(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:

            def refuse(_: object) -> None:
                raise ValueError("codes must lie in [0, 512)")

            b.codec.push = refuse
            b.speech.push_text("one two.")
            with pytest.raises(GenerationFailed, match="the utterance failed"):
                await b.listen()
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_oversized_prompt_fails_iteration_not_push_text(
    bench: Callable[..., SpeechBench],
) -> None:
    async def scene() -> None:
        async with bench(prompt=replace(PROMPT, context=np.repeat(PROMPT.context, 200, axis=0))) as b:
            b.speech.push_text("one two three, and so on. ")
            b.speech.push_text("more")
            b.speech.end()
            with pytest.raises(GenerationFailed, match="the utterance failed"):
                await b.listen()
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_codec_failure_is_raised(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.codec.fail(EngineLost("the codec worker died"))
            with pytest.raises(EngineLost, match="codec"):
                await anext(b.speech)

    run(scene())


def test_failure_to_begin_is_raised_by_iteration(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.engine.dead = True
            b.speech.push_text(STORY)
            with pytest.raises(EngineLost):
                await b.listen()

    run(scene())
