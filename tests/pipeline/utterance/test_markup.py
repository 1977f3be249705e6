"""Markup in the text of an utterance: pauses are exact silence, and all offsets are those of the client's text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from fakes.pipeline.echo_engine import END_OF_TEXT, EchoEngine
from fakes.pipeline.speech_bench import SpeechBench
from fakes.virtual_time import run, settle
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.errors import EmptyText
from voxgate.pipeline.interface import MarkupDialect, SpeechChunk
from voxgate.pipeline.text.text_turns import TextTurns

ALL = tuple(MarkupDialect)
SECOND = 24_000
TEXT = 'one two <break time="1.01s"/>three <sub alias="number four">4</sub> <b>five</b>'


def is_pause(chunk: SpeechChunk) -> bool:
    return len(chunk.pcm) > 0 and not chunk.frames and not chunk.pcm.any()


def silences(chunks: list[SpeechChunk]) -> list[tuple[int, int]]:
    """Start and length in samples of each pause in the audio."""
    runs: list[tuple[int, int]] = []
    at = 0
    for chunk in chunks:
        if is_pause(chunk):
            if runs and sum(runs[-1]) == at:
                runs[-1] = (runs[-1][0], runs[-1][1] + len(chunk.pcm))
            else:
                runs.append((at, len(chunk.pcm)))
        at += len(chunk.pcm)
    return runs


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pause_lies_between_two_generations_exact_to_the_sample(bench: Callable[..., SpeechBench], size: int) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            for at in range(0, len(TEXT), size):
                b.speech.push_text(TEXT[at : at + size])
            b.speech.end()
            chunks = await b.listen()
            assert b.segments() == ["one two", "three number four five"]
            ((start, length),) = silences(chunks)
            last = next(n for n, (a, b) in enumerate(pairwise(b.codec.frames)) if a[0] >= END_OF_TEXT > b[0])
            assert start == (last + 1) * FRAME_SAMPLES, "behind the last frame of the first generation"
            assert length == 1010 * SECOND // 1000
            speech = np.concatenate([chunk.pcm for chunk in chunks if not is_pause(chunk)])
            assert [round((level - 0.1) * 1000) for level in speech[::FRAME_SAMPLES]] == [*range(len(b.codec.frames))]
            assert sum(chunk.frames for chunk in chunks) == len(b.codec.frames)

    run(scene())


def test_words_have_their_place_in_the_clients_text(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            words = [word for chunk in await b.say(TEXT) for word in chunk.words]
            assert [word.text for word in words] == ["one", "two", "three", "number", "four", "five"]
            assert [TEXT[word.start : word.end] for word in words] == ["one", "two", "three", "4", "4", "five"]
            assert words[2].start_ms - words[1].end_ms >= 1010

    run(scene())


def test_spoken_text_is_the_clients(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            chunks = await b.say(TEXT)
            ((start, length),) = silences(chunks)
            begin_ms, end_ms = start // 24, (start + length) // 24
            heard = [TEXT[: b.speech.spoken_until(ms)] for ms in (0, begin_ms, (begin_ms + end_ms) // 2, end_ms, 10**9)]
            assert heard[0] == ""
            assert heard[1] == heard[2] == heard[3] == "one two "
            assert heard[4] == TEXT

    run(scene())


def test_first_pause_comes_before_the_first_frame(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL, trim_silence=True) as b:
            b.codec.silent = lambda number: number < 3
            chunks = await b.say('<break time="0.5s"/>one')
            assert silences(chunks) == [(0, SECOND // 2)]
            assert chunks[-1].words[0].start_ms >= 500

    run(scene())


def test_pause_is_given_out_while_the_client_thinks(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            b.speech.push_text('one <break time="0.5s"/>')
            samples = 0
            while samples < SECOND // 2:
                chunk = await anext(b.speech)
                samples += len(chunk.pcm) if is_pause(chunk) else 0
            assert samples == SECOND // 2
            await settle()
            assert b.speech.waiting_for_text

    run(scene())


def test_pauses_alone_are_silence(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            assert silences(await b.say('<break time="0.5s"/> <break time="0.25s"/>')) == [(0, 3 * SECOND // 4)]
            assert not b.engine.opened

    run(scene())


def test_reasoning_alone_is_empty(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            with pytest.raises(EmptyText):
                await b.say("<think>hm</think>")

    run(scene())


def test_playback_of_a_pause_is_no_playback_of_frames(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            chunks = await b.say('one <break time="0.8s"/>two')
            ((start, _),) = silences(chunks)
            before = start // FRAME_SAMPLES
            for frames in (before, before + 10, before + 11):
                b.speech.advance(frames)
            assert b.codec.heard == [before, before + 1]

    run(scene())


def test_what_is_ignored_is_said_once(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL) as b:
            chunks = await b.say('<prosody pitch="high">one</prosody> <prosody pitch="low">two</prosody>')
            notices = [notice for chunk in chunks for notice in chunk.notices]
            assert notices == ["<prosody pitch> is not supported and was ignored"]

    run(scene())


def test_spelled_text_may_be_longer_than_the_limit(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL, max_characters=60) as b:
            await b.say("<spell>" + "A" * 53)
            assert len(b.speech._text.source) > 60

    run(scene())


def test_text_that_was_held_back_counts_for_the_turn(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        turns = TextTurns()
        async with bench(markup=ALL, text_turns=turns) as b:
            b.speech.push_text('<a b="' + "x" * 40)
            await settle()
            b.speech.push_text(" c" * 5)
            await settle()
            assert turns.left == 64
            b.speech.push_text('"<')
            assert turns.left < 64 - 50

    run(scene())


def test_closing_drops_pauses(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(markup=ALL, engine=EchoEngine()) as b:
            b.speech.push_text('one <break time="9s"/>')
            await settle()
            await b.speech.aclose()
            assert not silences(await b.listen())

    run(scene())
