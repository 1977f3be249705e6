"""How far generation runs ahead of playback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.pipeline.speech_bench import PROMPT, SAMPLING, STORY, SpeechBench
from fakes.virtual_time import run, settle
from voxgate.pipeline.checkpoint.voice_config import VoiceConfig
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.utterance.plan import UtterancePlan

PLAN = UtterancePlan(PROMPT, SAMPLING, max_frames=None, lookahead_frames=50, rules=VoiceConfig())


def test_lookahead_grows_with_playback_to_its_limit() -> None:
    plan = replace(PLAN, initial_burst_frames=12)
    assert [plan.lookahead(heard, decoded=True) for heard in (0, 8, 38, 100)] == [12, 20, 50, 50]


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, initial_burst_frames=12, paced=False)])
def test_whole_lookahead_is_generated_at_once_without_burst_or_pacing(plan: UtterancePlan) -> None:
    assert plan.lookahead(0, decoded=True) == 50


def test_fewer_frames_are_generated_before_the_first_is_decoded() -> None:
    plan = replace(PLAN, initial_burst_frames=12, frames_before_first_pcm=1)
    assert plan.lookahead(0, decoded=False) == 1
    assert plan.lookahead(0, decoded=True) == 12


def test_frame_cap_subtracts_earlier_generations() -> None:
    by_text = PLAN.rules.limits.max_frames(10)
    assert PLAN.frame_cap(10, before=30) == by_text
    plan = replace(PLAN, max_frames=40)
    assert plan.frame_cap(10, before=30) == min(10, by_text)
    assert plan.frame_cap(10, before=40) == plan.frame_cap(10, before=50) == 0


def test_generation_stays_within_lookahead(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(lookahead_frames=4) as b:
            b.speech.push_text(STORY)
            await settle()
            assert len(b.codec.frames) == 4
            b.speech.advance(3)
            await settle()
            assert len(b.codec.frames) == 7
            b.speech.advance(2)
            await settle()
            assert len(b.codec.frames) == 7
            assert b.codec.heard == [3]

    run(scene())


@pytest.mark.parametrize(("paced", "made"), [(True, [3, 5, 9, 12]), (False, [7, 8, 10, 12])])
def test_generation_follows_growing_lookahead(bench: Callable[..., SpeechBench], paced: bool, made: list[int]) -> None:
    """Generation runs at twice the speed of playback up to the lookahead; unpaced, all of it at once."""

    async def scene() -> None:
        async with bench(lookahead_frames=7, initial_burst_frames=3, paced=paced) as b:
            b.speech.push_text(STORY)
            await settle()
            counts = [len(b.codec.frames)]
            for heard in (1, 3, 5):
                b.speech.advance(heard)
                await settle()
                counts.append(len(b.codec.frames))
            assert counts == made

    run(scene())


def test_generation_waits_for_first_decoded_frame(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(lookahead_frames=7, frames_before_first_pcm=1) as b:
            b.speech.push_text(STORY)
            await settle()
            assert len(b.codec.frames) == 1
            assert (await anext(b.speech)).frames == 1
            await settle()
            assert len(b.codec.frames) == 7

    run(scene())


def test_credit_follows_the_first_audio(bench: Callable[..., SpeechBench]) -> None:
    """It wakes the engine, which takes time that the audio's way to the client does not have."""

    async def scene() -> None:
        async with bench(lookahead_frames=7, frames_before_first_pcm=1) as b:
            b.speech.push_text(STORY)
            await settle()
            row = b.engine.tables.control[b.engine.opened[0].slot]
            await anext(b.speech)
            assert row[Field.CREDIT] == 1
            await asyncio.sleep(0)
            assert row[Field.CREDIT] == 7

    run(scene())


@pytest.mark.parametrize(("paced", "due"), [(True, 7), (False, 5)])
def test_engine_gets_urgency_of_the_next_frame(bench: Callable[..., SpeechBench], paced: bool, due: int) -> None:
    """Due frames follow playback; unpaced, real time: 0.4 s are five frames."""

    async def scene() -> None:
        async with bench(lookahead_frames=9, paced=paced) as b:
            b.speech.push_text(STORY)
            await settle()
            row = b.engine.tables.control[b.engine.opened[0].slot]
            assert (row[Field.HEARD], row[Field.PACED]) == (0, paced)
            await asyncio.sleep(0.401)
            b.speech.advance(7)
            await settle()
            assert (row[Field.HEARD], row[Field.CREDIT]) == (due, 7 + 9)

    run(scene())


def test_credit_counts_over_all_generations(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(lookahead_frames=6) as b:
            for word in ("one", "two", "three", "four"):
                b.speech.push_text(word)
                b.speech.flush()
            b.speech.end()
            heard = 0
            while not b.codec.finished:
                await settle()
                assert len(b.codec.frames) <= heard + 6
                heard += 1
                b.speech.advance(heard)
            assert len(b.engine.opened) == 4
            assert b.spoken() == [t for w in ("one", "two", "three", "four") for t in b.tokenizer.encode_plain(w)]

    run(scene())
