"""An utterance goes on in another process from the codes that the first one has made, wherever they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from fakes.pipeline.speech_bench import STORY, SpeechBench
from fakes.virtual_time import run
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.code_log import CodeLog
from voxgate.pipeline.interface import CodeRun, FinishReason, Prosody, SpeechChunk

RULES = TextRules(segment_tokens=4)
"""Several generations in the story."""


def first_frames(runs: list[CodeRun], frames: int) -> list[CodeRun]:
    """The runs up to so many frames of the utterance."""
    cut: list[CodeRun] = []
    for each in runs:
        kept = each.codes[: max(0, frames)]
        frames -= len(each.codes)
        cut.append(CodeRun(each.generation, each.first, kept, each.end if frames >= 0 else None))
        if frames < 0:
            break
    return [each for each in cut if len(each.codes) or each.end is not None]


async def story(b: SpeechBench) -> list[SpeechChunk]:
    """Speaks the story word by word, hearing each chunk at once."""
    chunks: list[SpeechChunk] = []

    async def write() -> None:
        for word in STORY.split():
            b.speech.push_text(word + " ")
            await asyncio.sleep(0)
        b.speech.end()

    writing = asyncio.create_task(write())
    async for chunk in b.speech:
        chunks.append(chunk)
        b.speech.advance(chunk.first_frame + chunk.frames)
    await writing
    return chunks


def heard(chunks: list[SpeechChunk]) -> tuple[list[float], list[tuple[str, int]]]:
    words = [(word.text, word.start) for chunk in chunks for word in chunk.words]
    return np.concatenate([chunk.pcm for chunk in chunks])[::480].tolist(), words


@pytest.mark.parametrize("rate", [1.0, 1.25])
@pytest.mark.parametrize("lookahead", [5, 10_000])
def test_an_utterance_goes_on_behind_any_frame(bench: Callable[..., SpeechBench], rate: float, lookahead: int) -> None:
    async def speak(past: list[CodeRun]) -> tuple[SpeechBench, list[SpeechChunk], list[CodeRun]]:
        log = CodeLog(past, keep=True)
        async with bench(rules=RULES, prosody=Prosody(rate), lookahead_frames=lookahead, codes=log) as b:
            return b, await story(b), log.take()

    async def scene() -> None:
        undisturbed, chunks, runs = await speak([])
        total = sum(len(each.codes) for each in runs)
        assert len({each.generation for each in runs}) > 2
        assert total == len(undisturbed.codec.frames)
        for frames in range(0, total + 1, 3 if lookahead > 5 else 7):
            past = first_frames(runs, frames)
            b, again, later = await speak(past)
            assert heard(again) == heard(chunks)
            assert b.speech.finish_reason is undisturbed.speech.finish_reason
            # The codes of the past are not made again, and those that follow are numbered behind them.
            known = sum(len(each.codes) for each in past)
            assert sum(len(each.codes) for each in later) == total - known
            assert [frame[0] for each in (*past, *later) for frame in each.codes] == [
                frame[0] for each in runs for frame in each.codes
            ]

    run(scene())


def test_known_codes_wait_for_credit(bench: Callable[..., SpeechBench]) -> None:
    """Their audio has to be held otherwise, however long the checkpoint is."""

    async def scene() -> None:
        past = [CodeRun(0, 0, np.ones((200, 16), np.int16))]
        async with bench(lookahead_frames=10, codes=CodeLog(past)) as b:
            b.speech.push_text(STORY)
            listening = asyncio.create_task(b.listen())
            await asyncio.sleep(1)
            assert len(b.codec.frames) == 10
            b.speech.advance(20)
            await asyncio.sleep(1)
            assert len(b.codec.frames) == 30
            listening.cancel()

    run(scene())


def test_a_generation_that_ended_takes_no_step_of_the_engine(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        past = [CodeRun(0, 0, np.ones((5, 16), np.int16), FinishReason.END)]
        async with bench(codes=CodeLog(past)) as b:
            await b.say("one two three.")
            assert len(b.codec.frames) == 5
            assert b.engine.seeds == []
            assert b.speech.finish_reason is FinishReason.END

    run(scene())
