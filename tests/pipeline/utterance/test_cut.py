"""A speech is cut, and another one goes on behind the cut with other text: what was spoken up to there is the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes.pipeline.speech_bench import SpeechBench
from fakes.virtual_time import run
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.code_log import CodeLog
from voxgate.pipeline.interface import CodeRun, MarkupDialect, Prosody, SpeechChunk, SpeechCut
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule

PLAIN = "one two three. four five six! seven eight. nine ten eleven twelve?"
MARKED = (
    '<break time="0.5s"/>one two <break time="1s"/> three. four <prosody rate="80%">five six!</prosody> seven '
    'eight.<break time="300ms"/> nine ten'
)
OTHER = "something else. quite different?"
SSML = frozenset({MarkupDialect.SSML})


def audio(chunks: list[SpeechChunk]) -> np.ndarray:
    return np.concatenate([chunk.pcm for chunk in chunks])


async def hear(b: SpeechBench, samples: int | None = None) -> list[SpeechChunk]:
    """Reads the speech, hearing each chunk at once, up to so many samples of audio."""
    chunks: list[SpeechChunk] = []
    heard = 0
    async for chunk in b.speech:
        chunks.append(chunk)
        heard += len(chunk.pcm)
        b.speech.advance(heard // FRAME_SAMPLES)
        if samples is not None and (heard >= samples or b.speech.waiting_for_text):
            break
    return chunks


async def cut_after(
    b: SpeechBench, text: str, samples: int, kept: int, *, ended: bool
) -> tuple[list[SpeechChunk], SpeechCut]:
    """Speaks `text`, and takes back all but `kept` characters once `samples` of audio were sent and more are made."""
    b.speech.push_text(text)
    if ended:
        b.speech.end()
    chunks = await hear(b, samples + 12 * FRAME_SAMPLES)
    while b.speech.catch_up():
        await asyncio.sleep(0)
    cut = b.speech.cut(text, min(samples, len(audio(chunks))), kept, final=True)
    assert cut is not None
    return chunks, cut


async def go_on(b: SpeechBench, text: str, cut: SpeechCut, kept: int) -> list[SpeechChunk]:
    b.speech.push_text(text[: cut.characters])
    if cut.divides and cut.characters:
        b.speech.flush()
    b.speech.push_text(text[cut.characters : kept] + OTHER)
    b.speech.end()
    return await hear(b)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"rules": TextRules(segment_tokens=4)},
    {"rules": TextRules(segment_tokens=4), "prosody": Prosody(1.25)},
    {"trim_silence": True},
    {"lexica": (Lexicon((LexiconRule("two three", "deux trois quatre"),)),)},
    {"timing": True},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("text", [PLAIN, MARKED])
def test_what_was_spoken_up_to_the_cut_is_the_same(
    bench: Callable[..., SpeechBench], text: str, options: dict[str, Any]
) -> None:
    if text == MARKED:
        options = {**options, "markup": SSML}
    lazy = options.get("timing", False)
    options = {name: value for name, value in options.items() if name != "timing"}

    def make(past: tuple[CodeRun, ...] = ()) -> SpeechBench:
        timing = LazyWordAligner(WordAligner()) if lazy else None
        made = bench(codes=CodeLog(past), lookahead_frames=30, timing=timing, **options)
        if options.get("trim_silence"):
            made.codec.silent = lambda number: number < 4
        return made

    async def scene() -> None:
        found = set()
        for frames, share, ended in itertools.product(range(0, 26), (0, 0.4), (False, True)):
            samples, kept = frames * FRAME_SAMPLES + 100 * (frames % 2), int(share * len(text))
            async with make() as b:
                chunks, cut = await cut_after(b, text, samples, kept, ended=ended)
            before = audio(chunks)
            if not cut.divides:
                assert cut.characters == kept
                continue
            assert min(samples, len(before)) <= cut.samples or (not cut.samples and not samples)
            assert cut.settled_samples <= cut.samples
            async with make(cut.past) as other:
                after = audio(await go_on(other, text, cut, max(kept, cut.characters)))
            fixed = min(len(before), max(samples, cut.settled_samples))
            if samples >= len(before) and "prosody" in options:
                fixed = cut.settled_samples  # a stretch that has ended ends otherwise than one that goes on
            assert np.array_equal(after[:fixed], before[:fixed])
            assert len(after) > cut.samples
            made = sum(len(each.codes) for each in cut.past)
            drawn = [frame[0] for frame in other.codec.frames]
            assert drawn[:made] == [int(frame[0]) for each in cut.past for frame in each.codes]
            # What follows has its own generation: of the replaced text, the talker reads nothing.
            read = " ".join(other.segments()[len(cut.past) :])
            assert OTHER.split()[0] in read
            found.add(cut.characters)
        assert len(found) > 3

    run(scene())


def test_text_that_no_generation_has_begun_to_read_is_dropped_without_a_cut(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4), lookahead_frames=8) as b:
            b.speech.push_text(PLAIN)
            await hear(b, 3 * FRAME_SAMPLES)
            read = PLAIN.index("seven")
            cut = b.speech.cut(PLAIN, 3 * FRAME_SAMPLES, read, final=True)
            assert cut is not None
            assert not cut.divides
            assert cut.characters == read
            assert cut.past[-1].end is None

    run(scene())
