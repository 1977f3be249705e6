"""Closing and cancelling at any moment releases slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes.pipeline.speech_bench import STORY, SpeechBench, audio_frames
from fakes.virtual_time import run, settle, turns
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.utterance.speech import CLOSE_DEADLINE_S


def test_closing_while_speaking_frees_slot_and_codec(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(lookahead_frames=3) as b:
            b.speech.push_text(STORY)
            await anext(b.speech)
            await b.speech.aclose()
            assert b.engine.aborted == b.engine.opened
            assert len(b.engine.free_slots) == 2
            assert b.codec.closed == 1
            assert b.over == [b.speech]

    run(scene())


@pytest.mark.parametrize("after", range(12))
def test_closing_at_any_moment_frees_the_slot_once(bench: Callable[..., SpeechBench], after: int) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=2)) as b:
            b.speech.push_text("one. two. ")
            b.speech.end()
            await turns(after)
            await b.speech.aclose()
            await settle()
            assert sorted(b.engine.free_slots) == [0, 1]
            assert b.over == [b.speech]

    run(scene())


def test_closing_does_not_wait_for_a_hanging_engine(
    bench: Callable[..., SpeechBench], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with bench(lookahead_frames=3) as b:
            b.speech.push_text(STORY)
            await anext(b.speech)
            assert b.speech._generations.present is not None
            confirmed = asyncio.Event()
            b.speech._generations.present.aclose = confirmed.wait
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await b.speech.aclose()
            assert loop.time() - began_s == pytest.approx(CLOSE_DEADLINE_S)
            assert b.codec.closed == 1
            assert b.over == [], "its slot is still taken"
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            confirmed.set()

    run(scene())


def test_closing_before_any_text_opens_no_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            await b.speech.aclose()
            await b.speech.aclose()
            assert b.engine.opened == []
            assert await b.listen() == []
            assert b.speech.finish_reason is None

    run(scene())


def test_closing_ends_a_pending_iteration(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            listening = asyncio.create_task(b.listen())
            await settle()
            await b.speech.aclose()
            assert await listening == []

    run(scene())


def test_cancelling_an_iteration_loses_nothing(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            waiting = asyncio.create_task(anext(b.speech))
            await settle()
            waiting.cancel()
            await asyncio.wait([waiting])
            chunks = await b.say("one two.")
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))

    run(scene())


def test_cancelling_the_close_still_closes_the_codec(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(lookahead_frames=3) as b:
            b.engine.request_release = b.engine.aborted.append
            b.speech.push_text(STORY)
            await anext(b.speech)
            closing = asyncio.create_task(b.speech.aclose())
            await settle()
            closing.cancel()
            await asyncio.wait([closing])
            assert b.codec.closed == 1
            b.engine.opened[0].on_released()
            await b.speech.aclose()
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_generation_begun_before_the_task_ran_is_released(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text(STORY)
            assert len(b.engine.free_slots) == 1
        assert len(b.engine.free_slots) == 2

    run(scene())
