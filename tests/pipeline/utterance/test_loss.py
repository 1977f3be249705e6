"""Engine, codec or both are lost under an utterance, at any moment: it goes on in the next as if nothing happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from fakes.pipeline.echo_engine import PADDING, EchoEngine
from fakes.pipeline.speech_bench import STORY, SpeechBench
from fakes.virtual_time import run, settle, turns
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.interface import FinishReason, Prosody, SpeechChunk, VisemeTime

RULES = TextRules(segment_tokens=4)
"""Several generations in the story."""
LOSSES = {
    "engine": lambda b: b.engine.die(),
    "codec": lambda b: b.codec.die(),
    "both": lambda b: (b.engine.die(), b.codec.die()),
}
VISEMES = np.random.default_rng(5).integers(0, 15, (PADDING + 1, 4)).astype(np.uint8)
MAX_MOMENTS = 400


def next_engine(b: SpeechBench) -> None:
    """Starts another engine and resumes the speech in it; both are lost then, as after a restart."""
    b.engine.die()
    b.codec.die()
    b.engine = EchoEngine()
    b.speech.resume()


async def speak(b: SpeechBench, moments: set[int] | None = None, lose: Callable[[SpeechBench], object] = id) -> list:
    """Speaks the story word by word, and calls `lose` in the turns of the event loop in `moments`."""
    chunks: list[SpeechChunk] = []

    async def listen() -> None:
        async for chunk in b.speech:
            chunks.append(chunk)
            b.speech.advance(chunk.first_frame + chunk.frames)
            if b.speech.lost:
                restart.set()

    async def restarts() -> None:
        while True:
            await restart.wait()
            restart.clear()
            await asyncio.sleep(1)
            next_engine(b)

    async def write() -> None:
        for word in STORY.split():
            b.speech.push_text(word + " ")
            await turns(3)
        b.speech.end()

    restart = asyncio.Event()
    restarting = asyncio.create_task(restarts())
    listening, writing = asyncio.create_task(listen()), asyncio.create_task(write())
    for moment in range(MAX_MOMENTS):
        if moment in (moments or ()):
            lose(b)
        await asyncio.sleep(0)
    await writing
    await asyncio.wait_for(listening, 60)
    restarting.cancel()
    return chunks


def heard(chunks: list[SpeechChunk]) -> tuple[list[float], list[tuple[str, int, int, int]], list[VisemeTime]]:
    """All samples, all words with their places and times, and all mouth shapes."""
    words = [(word.text, word.start, word.start_ms, word.end_ms) for chunk in chunks for word in chunk.words]
    visemes = [viseme for chunk in chunks for viseme in chunk.visemes]
    return np.concatenate([chunk.pcm for chunk in chunks])[::480].tolist(), words, visemes


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("rate", [1.0, 1.25])
def test_loss_at_any_moment_changes_no_sample_no_word_and_no_viseme(
    bench: Callable[..., SpeechBench], lose: Callable[[SpeechBench], object], rate: float
) -> None:
    def make() -> SpeechBench:
        return bench(rules=RULES, lookahead_frames=6, prosody=Prosody(rate=rate), visemes=VISEMES)

    async def undisturbed() -> tuple[object, list[int]]:
        async with make() as b:
            return heard(await speak(b)), b.spoken()

    async def disturbed(moments: set[int]) -> None:
        async with make() as b:
            assert heard(await speak(b, moments, lose)) == expected
            assert b.spoken() == spoken
            assert b.speech.finish_reason is FinishReason.END
            assert len(b.engine.free_slots) == 2
        assert set(b.over) == {b.speech}

    expected, spoken = run(undisturbed())
    for moment in range(0, 160, 3 if rate == 1 else 11):
        run(disturbed({moment, moment + 70}))


def test_continued_generations_keep_their_seeds(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(rules=RULES) as kept:
            await kept.say(STORY)
            seeds = kept.engine.seeds
        async with bench(rules=RULES, lookahead_frames=3) as b:
            engines = [b.engine]

            def lose(b: SpeechBench) -> None:
                b.engine.die()
                engines.append(b.engine)

            await speak(b, {30, 60}, lose)
            engines.append(b.engine)
            seen = dict.fromkeys(seed for engine in engines for seed in engine.seeds)
            assert list(seen) == seeds

    run(scene())


def test_audio_made_ahead_is_played_meanwhile(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two three ")
            await settle()
            made = len(b.codec.frames)
            assert made > 2
            b.engine.die()
            await settle()
            assert b.speech.lost
            assert (await anext(b.speech)).frames == made
            assert not (await anext(b.speech)).frames
            assert not b.speech.waiting_for_text

    run(scene())


def test_speech_whose_last_audio_is_there_needs_no_other_engine(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two")
            b.speech.end()
            await settle()
            b.engine.die()
            chunks = await b.listen()
            assert sum(chunk.frames for chunk in chunks) == len(b.codec.frames)
            assert not b.speech.lost

    run(scene())


def test_text_and_end_are_taken_while_no_engine_is_there(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            listening = asyncio.create_task(b.listen())
            b.speech.push_text("one two ")
            await settle()
            b.engine.die()
            b.codec.die()
            await settle()
            assert b.speech.lost
            b.speech.push_text("three four")
            b.speech.end()
            await settle()
            assert not listening.done()
            next_engine(b)
            await asyncio.wait_for(listening, 60)
            assert b.spoken() == b.tokenizer.encode_plain("one two three four")

    run(scene())


def test_lost_speech_can_be_closed(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            listening = asyncio.create_task(b.listen())
            b.speech.push_text("one two ")
            await settle()
            b.engine.die()
            await settle()
            assert not await b.speech.suspend()
            await b.speech.aclose()
            await asyncio.wait_for(listening, 60)
            assert b.over == [b.speech]

    run(scene())


def test_first_generation_that_cannot_begin_begins_in_the_next_engine(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.engine.dead = True
            b.speech.push_text(STORY)
            b.speech.end()
            assert not (await anext(b.speech)).frames
            assert b.speech.lost
            next_engine(b)
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())
