"""Rate and volume of an utterance: its audio, the times of its words, and what was heard of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fakes.pipeline.echo_engine import END_OF_TEXT
from fakes.pipeline.speech_bench import SpeechBench
from fakes.virtual_time import run, settle
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.pipeline.errors import GenerationFailed
from voxgate.pipeline.interface import MarkupDialect, Prosody, SpeechChunk, WordTime

ALL = tuple(MarkupDialect)
TEXT = "one two three four five six seven."
CHANGE = 'one two three <speed ratio="0.5"/>four five <speed ratio="1"/><volume ratio="0.5"/>six'
NESTED = '<prosody rate="80%" volume="+3dB">one. <break time="1s"/>two</prosody>.'
RATES = [0.5, 0.8, 1.25, 2.0]
MakeBench = Callable[..., SpeechBench]


def audio(chunks: list[SpeechChunk]) -> Pcm:
    return np.concatenate([chunk.pcm for chunk in chunks])


def words(chunks: list[SpeechChunk]) -> list[WordTime]:
    return [word for chunk in chunks for word in chunk.words]


async def said(bench: MakeBench, text: str, size: int = 1000, **options: object) -> tuple[SpeechBench, Pcm]:
    """Speaks `text` in fragments of `size`, and hears it to its end."""
    async with bench(markup=ALL, **options) as b:
        for at in range(0, len(text), size):
            b.speech.push_text(text[at : at + size])
        b.speech.end()
        return b, audio(await b.listen())


@pytest.mark.parametrize("rate", RATES)
def test_audio_has_the_length_of_the_rate(bench: MakeBench, rate: float) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(rate)) as b:
            chunks = await b.say(TEXT)
            frames = len(b.codec.frames)
            assert len(audio(chunks)) == round(frames * FRAME_SAMPLES / rate)
            assert sum(chunk.frames for chunk in chunks) == frames

    run(scene())


@pytest.mark.parametrize("text", [TEXT, CHANGE, NESTED])
@pytest.mark.parametrize("prosody", [Prosody(), Prosody(0.8, 1.5), Prosody(1.25)])
def test_audio_does_not_depend_on_the_fragmentation(bench: MakeBench, text: str, prosody: Prosody) -> None:
    async def scene() -> None:
        _, whole = await said(bench, text, prosody=prosody)
        for size in (1, 3, 10):
            _, pcm = await said(bench, text, size, prosody=prosody)
            assert np.array_equal(pcm, whole)

    run(scene())


@pytest.mark.parametrize("rate", RATES)
def test_words_last_as_long_as_their_audio(bench: MakeBench, rate: float) -> None:
    async def scene() -> None:
        async with bench() as own, bench(prosody=Prosody(rate)) as other:
            for before, after in zip(words(await own.say(TEXT)), words(await other.say(TEXT)), strict=True):
                assert (after.text, after.start, after.end) == (before.text, before.start, before.end)
                assert after.start_ms == pytest.approx(before.start_ms / rate, abs=1)
                assert after.end_ms == pytest.approx(before.end_ms / rate, abs=1)

    run(scene())


@pytest.mark.parametrize("rate", RATES)
def test_heard_text_is_that_of_the_stretched_audio(bench: MakeBench, rate: float) -> None:
    async def scene() -> None:
        async with bench() as own, bench(prosody=Prosody(rate)) as other:
            ends_ms = [word.end_ms for word in words(await own.say(TEXT))]
            await other.say(TEXT)
            for end_ms in ends_ms:
                for at_ms in (end_ms - 10, end_ms + 10):
                    assert other.speech.spoken_until(round(at_ms / rate)) == own.speech.spoken_until(at_ms)

    run(scene())


def test_rate_changes_at_a_character(bench: MakeBench) -> None:
    async def scene() -> None:
        b, pcm = await said(bench, CHANGE)
        assert b.segments() == ["one two three", "four five", "six"]
        speaks = [frame[0] < END_OF_TEXT for frame in b.codec.frames]
        starts = [n for n, spoken in enumerate(speaks) if n and spoken and not speaks[n - 1]]
        slow, loud = starts[0] * FRAME_SAMPLES, starts[1] * FRAME_SAMPLES
        levels = np.repeat([0.1 + n / 1000 for n in range(len(b.codec.frames))], FRAME_SAMPLES).astype(np.float32)
        assert len(pcm) == len(levels) + loud - slow
        assert np.array_equal(pcm[:slow], levels[:slow])
        at = slow + 2 * (loud - slow)
        assert np.allclose(pcm[at + FRAME_SAMPLES :], levels[loud + FRAME_SAMPLES :] / 2)
        times = words_by_text(await told(bench, CHANGE))
        ms = FRAME_SAMPLES // 24
        assert times["three"].end_ms <= starts[0] * ms <= times["four"].start_ms
        assert times["five"].end_ms <= at // 24 <= times["six"].start_ms
        assert CHANGE[times["four"].start : times["six"].end] == CHANGE[CHANGE.index("four") :]
        assert CHANGE[: b.speech.spoken_until(starts[0] * ms + 1)].rstrip().endswith("three")

    run(scene())


async def told(bench: MakeBench, text: str) -> list[WordTime]:
    async with bench(markup=ALL) as b:
        return words(await b.say(text))


def words_by_text(found: list[WordTime]) -> dict[str, WordTime]:
    return {word.text: word for word in found}


def test_markup_at_the_beginning_needs_no_generation_of_its_own(bench: MakeBench) -> None:
    async def scene() -> None:
        b, pcm = await said(bench, '<speed ratio="2"/>' + TEXT)
        assert len(b.segments()) == 1
        assert len(pcm) == len(b.codec.frames) * FRAME_SAMPLES // 2

    run(scene())


def test_own_prosody_needs_no_generation_of_its_own(bench: MakeBench) -> None:
    async def scene() -> None:
        b, _ = await said(bench, 'one <speed ratio="1"/>two <prosody rate="medium">three</prosody> four')
        assert b.segments() == ["one two three four"]

    run(scene())


@pytest.mark.parametrize("rate", RATES)
def test_playback_is_counted_in_audio(bench: MakeBench, rate: float) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(rate)) as b:
            await b.say(TEXT)
            b.speech.advance(2)
            b.speech.advance(4)
            assert b.codec.heard == [frames for frames in (int(2 * rate), int(4 * rate)) if frames]

    run(scene())


@pytest.mark.parametrize(("rate", "frames"), [(0.5, 3), (1.0, 6), (2.0, 12)])
def test_generation_runs_ahead_by_the_same_audio(bench: MakeBench, rate: float, frames: int) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(rate), lookahead_frames=6) as b:
            b.speech.push_text(3 * TEXT)
            b.speech.end()
            await settle()
            assert len(b.codec.frames) == frames
            b.speech.advance(2)
            await settle()
            assert len(b.codec.frames) == frames + int(2 * rate)

    run(scene())


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_stretched_speech_waits_for_text_like_any(bench: MakeBench, rate: float) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(rate)) as b:
            b.speech.push_text("one two three ")
            while not b.speech.waiting_for_text:
                await anext(b.speech)
            b.speech.push_text("four.")
            b.speech.end()
            await b.listen()

    run(scene())


def test_failure_comes_behind_the_stretched_audio(bench: MakeBench) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(0.8)) as b:
            b.speech.push_text("one two three four")
            chunk = await anext(b.speech)
            assert chunk.frames
            b.codec.fail(GenerationFailed("broken"))
            with pytest.raises(GenerationFailed):
                await b.listen()

    run(scene())


def test_silence_is_trimmed_before_speech_is_stretched(bench: MakeBench) -> None:
    async def scene() -> None:
        async with bench(prosody=Prosody(0.5), trim_silence=True) as b:
            b.codec.silent = lambda number: number < 4
            chunks = await b.say(TEXT)
            kept = len(b.codec.frames) - 3
            assert len(audio(chunks)) == 2 * kept * FRAME_SAMPLES

    run(scene())
