"""How far generation runs ahead of the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes.speech_bench import STORY, Bench, turns
from fakes.virtual_time import run
from voxgate.pipeline.talker.tables import Field


def test_generation_runs_ahead_by_no_more_than_it_may(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(ahead_frames=4) as b:
            b.speech.push_text(STORY)
            await turns()
            assert len(b.codec.frames) == 4
            b.speech.advance(3)
            await turns()
            assert len(b.codec.frames) == 7
            b.speech.advance(2)
            await turns()
            assert len(b.codec.frames) == 7
            assert b.codec.heard == [3]

    run(scene())


@pytest.mark.parametrize(("paced", "made"), [(True, [3, 5, 9, 12]), (False, [7, 8, 10, 12])])
def test_what_is_ahead_can_grow_as_it_is_heard(bench: Callable[..., Bench], paced: bool, made: list[int]) -> None:
    """Twice as fast as it is played, up to what it may be; where nobody listens, all of it at once."""

    async def scene() -> None:
        async with bench(ahead_frames=7, first_frames=3, paced=paced) as b:
            b.speech.push_text(STORY)
            await turns()
            counts = [len(b.codec.frames)]
            for heard in (1, 3, 5):
                b.speech.advance(heard)
                await turns()
                counts.append(len(b.codec.frames))
            assert counts == made

    run(scene())


def test_the_first_frame_can_have_the_device_to_itself_until_it_is_decoded(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(ahead_frames=7, undecoded_frames=1) as b:
            b.speech.push_text(STORY)
            await turns()
            assert len(b.codec.frames) == 1
            assert (await anext(b.speech)).frames == 1
            await turns()
            assert len(b.codec.frames) == 7

    run(scene())


@pytest.mark.parametrize(("paced", "due"), [(True, 7), (False, 5)])
def test_the_engine_learns_how_urgent_the_next_frame_is(bench: Callable[..., Bench], paced: bool, due: int) -> None:
    """By what was heard; where nobody listens, by what would have been: 0.4 s are five frames."""

    async def scene() -> None:
        async with bench(ahead_frames=9, paced=paced) as b:
            b.speech.push_text(STORY)
            await turns()
            row = b.engine.tables.control[b.engine.opened[0].slot]
            assert row[Field.HEARD] == 0
            await asyncio.sleep(0.401)
            b.speech.advance(7)
            await turns()
            assert (row[Field.HEARD], row[Field.CREDIT]) == (due, 7 + 9)

    run(scene())


def test_credit_counts_over_all_generations(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(ahead_frames=6) as b:
            for word in ("one", "two", "three", "four"):
                b.speech.push_text(word)
                b.speech.flush()
            b.speech.end()
            heard = 0
            while not b.codec.finished:
                await turns()
                assert len(b.codec.frames) <= heard + 6
                heard += 1
                b.speech.advance(heard)
            assert len(b.engine.opened) == 4
            assert b.spoken() == [t for w in ("one", "two", "three", "four") for t in b.tokenizer.encode_plain(w)]

    run(scene())
