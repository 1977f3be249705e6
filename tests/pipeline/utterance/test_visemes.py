"""Mouth shapes come with their audio, or ahead of it, and have its times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, pairwise

import numpy as np
import pytest
from fakes.pipeline.echo_engine import END_OF_TEXT, PADDING
from fakes.pipeline.speech_bench import STORY, SpeechBench
from fakes.virtual_time import run
from voxgate.pipeline.alignment.visemes import VISEMES
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.interface import MarkupDialect, Prosody, SpeechChunk

TABLE = np.random.default_rng(3).integers(1, 15, (PADDING + 1, 4)).astype(np.uint8)
"""Open shapes of text tokens, and of frames without one."""
MakeBench = Callable[..., SpeechBench]


def found(chunks: list[SpeechChunk]) -> list[tuple[str, int]]:
    return [(each.viseme, each.start_ms) for chunk in chunks for each in chunk.visemes]


def expected(frames: list[list[int]], rate: float = 1.0) -> list[tuple[str, int]]:
    """The shapes of frames, of which each run begins where its first hop does, and the closed mouth behind them."""
    hops = [VISEMES[number] for frame in frames for number in TABLE[frame[0]]]
    at, shapes = 0, []
    for viseme, group in groupby([*hops, "sil"]):
        shapes.append((viseme, int(round(480 * at / rate) / 24)))
        at += len(list(group))
    return shapes


@pytest.mark.parametrize("rate", [1.0, 0.8, 2.0])
@pytest.mark.parametrize("segment_tokens", [4, 100])
def test_shapes_are_those_of_the_frames(bench: MakeBench, rate: float, segment_tokens: int) -> None:
    async def scene() -> None:
        rules = TextRules(segment_tokens=segment_tokens)
        async with bench(rules=rules, prosody=Prosody(rate), visemes=TABLE) as b:
            chunks = await b.say(STORY)
            assert found(chunks) == expected(b.codec.frames, rate)
            assert found(chunks)[-1] == ("sil", sum(len(chunk.pcm) for chunk in chunks) // 24)

    run(scene())


def test_shapes_never_come_behind_their_audio(bench: MakeBench) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(1.25), visemes=TABLE) as b:
            chunks = await b.say(STORY)
            sent_ms = 0.0
            for chunk in chunks:
                assert all(each.start_ms >= int(sent_ms) for each in chunk.visemes)
                sent_ms += len(chunk.pcm) / 24

    run(scene())


def test_trimmed_silence_shifts_times(bench: MakeBench) -> None:
    async def scene() -> None:
        async with bench(trim_silence=True, visemes=TABLE) as b:
            b.codec.silent = lambda number: number < 4
            assert found(await b.say(STORY)) == expected(b.codec.frames[3:])

    run(scene())


def test_mouth_is_closed_in_a_pause(bench: MakeBench) -> None:
    async def scene() -> None:
        open_mouth = np.full_like(TABLE, VISEMES.index("aa"))
        async with bench(markup=tuple(MarkupDialect), visemes=open_mouth) as b:
            shapes = found(await b.say('one two <break time="1s"/> three four'))
            frames = b.codec.frames
            cut_ms = 80 * next(n for n, (a, b) in enumerate(pairwise(frames), 1) if b[0] < END_OF_TEXT <= a[0])
            assert shapes == [("aa", 0), ("sil", cut_ms), ("aa", cut_ms + 1000), ("sil", 80 * len(frames) + 1000)]

    run(scene())


def test_shapes_are_not_told_unless_asked_for(bench: MakeBench) -> None:
    async def scene() -> None:
        async with bench() as b:
            assert found(await b.say(STORY)) == []

    run(scene())
