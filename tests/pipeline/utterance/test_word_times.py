"""Word times are reported with the audio of the words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from fakes.pipeline.echo_engine import END_OF_TEXT, EchoEngine
from fakes.pipeline.speech_bench import STORY, SpeechBench
from fakes.virtual_time import run, settle
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.checkpoint.voice_config import TextRules


def test_all_words_are_reported_by_the_end(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4)) as b:
            chunks = await b.say(STORY)
            words = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in words] == STORY.split()
            assert all(STORY[word.start : word.end] == word.text for word in words)
            assert all(a.end_ms <= b.start_ms for a, b in pairwise(words))
            assert words[-1].end_ms <= 80 * len(b.codec.frames)

    run(scene())


def test_words_lie_in_the_audio_of_their_generation(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        engine = EchoEngine(tail=60)
        async with bench(engine=engine) as b:
            b.speech.push_text("one two")
            b.speech.flush()
            await settle()
            first_ms = 80 * len(b.codec.frames)
            engine._tail = 2
            chunks = await b.say(" three four")
            words = [word for chunk in chunks for word in chunk.words]
            assert words[1].end_ms == pytest.approx(first_ms, abs=80)
            assert words[2].start_ms == pytest.approx(first_ms, abs=80)

    run(scene())


def test_last_words_may_come_without_audio(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            *_, last = await b.say("one two.")
            assert last.frames == 0
            assert last.first_frame == len(b.codec.frames)
            assert last.words[-1].text == "two."
            assert b.speech.spoken_until(10**9) == len("one two.")

    run(scene())


@pytest.mark.parametrize("trim", [False, True])
def test_aligner_gets_each_frame_with_its_code(
    bench: Callable[..., SpeechBench], monkeypatch: pytest.MonkeyPatch, trim: bool
) -> None:
    heard: list[tuple[float, int]] = []
    segments: list[int] = []

    def listen(_clock: WordAligner, pcm: NDArray[np.float32], codes: NDArray[np.int16]) -> None:
        assert len(pcm) == len(codes) * FRAME_SAMPLES
        heard.extend(zip(pcm[::FRAME_SAMPLES].tolist(), codes.tolist(), strict=True))

    def end(_clock: WordAligner, _source_end: int | None = None) -> None:
        segments.append(len(heard))

    monkeypatch.setattr(WordAligner, "push_audio", listen)
    monkeypatch.setattr(WordAligner, "end_segment", end)

    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4), trim_silence=trim) as b:
            b.codec.silent = lambda number: trim and number < 4
            await b.say(STORY)
            made = b.codec.frames[3 if trim else 0 :]
            assert [code for _, code in heard] == [frame[0] for frame in made]
            levels = [level for level, _ in heard if level]
            assert levels == pytest.approx([0.1 + n / 1000 for n in range(4 if trim else 0, len(b.codec.frames))])
            # The last frame of each segment belongs to its end, not to a token.
            ends = [n + 1 for n, (a, b) in enumerate(pairwise(made)) if a[0] >= END_OF_TEXT > b[0]]
            assert segments[: len(ends)] == ends
            assert len(ends) > 1

    run(scene())
