"""One utterance: text split over generations, credit carried across them, and every frame to its listener."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from voxgate.pipeline.credit import CreditRounds
from voxgate.pipeline.errors import EmptyText, EngineLost, GenerationFailed, TextTooLong, VoxgateError
from voxgate.pipeline.plan import Plan
from voxgate.pipeline.speech import FRAME_SAMPLES, FinishReason, SpeechChunk, TextLayout
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.prompt import Prompt
from voxgate.pipeline.talker.tables import Field
from voxgate.pipeline.text.rules import FrameLimits, TextRules, VoiceFile
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer
from voxgate.pipeline.text.utterance import SpeechToken, UtteranceText
from voxgate.pipeline.utterance import FIRST_CHARACTERS, MAX_TRIMMED_FRAMES, UtteranceSpeech
from voxgate.pipeline.words import SpokenClock

from ..fakes.engine import END_OF_TEXT, FakeEngine
from ..fakes.virtual_time import run

PROMPT = Prompt(
    text=(1, 5),
    head=np.array([[-1] * 16, [512] + [-1] * 15], np.int32),
    context=np.array([[513] + [-1] * 15], np.int32),
    layout=TextLayout.STREAMING,
    filler=512,
)
SAMPLING = Sampling(0.6, 50, 1.0, 1.0, 0.6, 50, 1.0, 1000)
STORY = "one two three. four five six! seven eight. nine ten eleven twelve?"


class FakeCodec:
    """Turns each frame into 80 ms of loud audio, at most `chunk` frames at a time."""

    def __init__(self, chunk: int = 3) -> None:
        self.frames: list[list[int]] = []
        self.heard: list[int] = []
        self.closed = 0
        self.finished = False
        self.broken: VoxgateError | None = None
        self.silent: Callable[[int], bool] = lambda number: False  # noqa: ARG005 - of a frame's number
        self._chunk = chunk
        self._waiting: deque[int] = deque()
        self._news = asyncio.Event()

    def push(self, codes: NDArray[np.int16]) -> None:
        assert not self.finished
        for frame in codes.tolist():
            self._waiting.append(len(self.frames))
            self.frames.append(frame)
        self._news.set()

    def finish(self) -> None:
        self.finished = True
        self._news.set()

    def advance(self, frames_heard: int) -> None:
        self.heard.append(frames_heard)

    async def __anext__(self) -> NDArray[np.float32]:
        while not self._waiting:
            if self.broken is not None:
                raise self.broken
            if self.finished or self.closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        count = min(self._chunk, len(self._waiting))
        numbers = [self._waiting.popleft() for _ in range(count)]
        levels = [0 if self.silent(number) else number / 1000 + 0.1 for number in numbers]
        return np.repeat(np.float32(levels), FRAME_SAMPLES)

    async def aclose(self) -> None:
        self.closed += 1
        self._news.set()


class Bench:
    """A speech over a fake engine and a fake codec; the text is the real one."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        rules: TextRules | None = None,
        limits: FrameLimits | None = None,
        engine: FakeEngine | None = None,
        max_frames: int | None = None,
        ahead_frames: int = 10_000,
        max_characters: int = 1000,
        trim_silence: bool = False,
        paced: bool = True,
        first_frames: int | None = None,
        undecoded_frames: int | None = None,
        prompt: Prompt = PROMPT,
    ) -> None:
        rules = rules or TextRules()
        self.engine = engine or FakeEngine()
        self.codec = FakeCodec()
        self.tokenizer = tokenizer
        self.over: list[UtteranceSpeech] = []
        file = VoiceFile(text=rules, limits=limits or FrameLimits())
        plan = Plan(
            prompt, SAMPLING, max_frames, ahead_frames, file, paced, trim_silence, first_frames, undecoded_frames
        )
        text = UtteranceText(rules, tokenizer, max_characters)
        self.speech = UtteranceSpeech(
            plan, text, SpokenClock(), self.engine.open, self.codec, CreditRounds(0.0), self.over.append
        )

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.speech.aclose()

    async def listen(self) -> list[SpeechChunk]:
        return [chunk async for chunk in self.speech]

    async def say(self, text: str) -> list[SpeechChunk]:
        self.speech.push_text(text)
        self.speech.end()
        return await self.listen()

    def segments(self) -> list[str]:
        """What each generation that is over has read, as text."""
        return [self.tokenizer.tokenizer.decode(ids).strip() for ids in self.engine.texts]

    def spoken(self) -> list[int]:
        """The text tokens that frames were made for, in the order the listener gets them."""
        return [frame[0] for frame in self.codec.frames if frame[0] >= 0]


@pytest.fixture(scope="session")
def text_tokenizer(demo_folder: Path) -> TextTokenizer:
    return load_tokenizer(demo_folder)


@pytest.fixture
def bench(text_tokenizer: TextTokenizer) -> Callable[..., Bench]:
    return lambda **options: Bench(text_tokenizer, **options)


async def turns(count: int = 60) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


def audio_frames(chunks: list[SpeechChunk]) -> list[int]:
    """The number of each frame heard, read from its audio."""
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    return [round((float(value) - 0.1) * 1000) for value in pcm[::FRAME_SAMPLES]]


# From text to audio


def test_every_frame_is_heard_once_and_numbered_without_gap(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            chunks = await b.say(STORY)
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))
            first = 0
            for chunk in chunks:
                assert chunk.first_frame == first
                first += chunk.frames
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())


def test_speech_begins_while_text_still_comes(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two ")
            chunk = await anext(b.speech)
            assert chunk.first_frame == 0
            assert b.speech.finish_reason is None
            b.speech.push_text("three.")
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain("one two three.")

    run(scene())


def test_speech_holds_when_its_text_is_used_up(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two ")
            await turns()
            assert len(b.codec.frames) == b.engine.opened[0].tokens
            assert not b.speech.waiting_for_text, "nothing was given out yet"
            while b.speech._delivered < len(b.codec.frames):
                await anext(b.speech)
            assert b.speech.waiting_for_text
            assert END_OF_TEXT not in [frame[0] for frame in b.codec.frames]

    run(scene())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), room=st.integers(4, 40), limit=st.integers(0, 12), ahead=st.integers(1, 40))
def test_nothing_is_lost_or_doubled_however_text_is_cut(
    text_tokenizer: TextTokenizer, data: st.DataObject, room: int, limit: int, ahead: int
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(STORY)), max_size=8)))
    pauses = data.draw(st.lists(st.integers(0, 9), min_size=len(cuts) + 1, max_size=len(cuts) + 1))

    async def scene() -> None:
        bench = Bench(
            text_tokenizer, rules=TextRules(segment_tokens=limit), engine=FakeEngine(text=room), ahead_frames=ahead
        )
        async with bench as b:

            async def listen() -> list[SpeechChunk]:
                chunks = []
                async for chunk in b.speech:
                    chunks.append(chunk)
                    b.speech.advance(chunk.first_frame + chunk.frames)
                return chunks

            listening = asyncio.create_task(listen())
            for begin, end, pause in zip([0, *cuts], [*cuts, len(STORY)], pauses, strict=True):
                b.speech.push_text(STORY[begin:end])
                await turns(pause)
            b.speech.end()
            chunks = await listening
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))
            assert " ".join(word.text for chunk in chunks for word in chunk.words) == STORY
            assert b.speech.finish_reason is FinishReason.END
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_text_beyond_the_limit_takes_nothing(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=9) as b:
            b.speech.push_text("one two")
            with pytest.raises(TextTooLong):
                b.speech.push_text(" three")
            assert b.speech.characters == 7
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain("one two")

    run(scene())


# Where one generation gives way to the next


def test_without_a_limit_all_is_one_generation(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            await b.say(STORY)
            assert b.segments() == [STORY]

    run(scene())


def test_a_new_generation_begins_at_the_first_sentence_end_after_the_limit(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4)) as b:
            await b.say(STORY)
            assert len(b.segments()) > 1
            assert " ".join(b.segments()) == STORY
            assert all(segment[-1] in ".!?" for segment in b.segments())
            assert all(len(text) >= 4 for text in b.engine.texts[:-1])

    run(scene())


def test_a_full_slot_is_followed_by_another_wherever_it_is(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(engine=FakeEngine(text=5)) as b:
            await b.say(STORY)
            assert {len(text) for text in b.engine.texts[:-1]} == {5}
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())


def test_a_flush_ends_the_generation_and_what_follows_begins_another(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two")
            b.speech.flush()
            await turns()
            # All of it was spoken, to its end, without more text.
            assert b.engine.opened[0].finish_reason is FinishReason.END
            await b.say("three four")
            assert b.segments() == ["one two", "three four"]

    run(scene())


def test_several_flushes_in_one_go_each_make_a_generation(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            for word in ("one", "two", "three"):
                b.speech.push_text(word)
                b.speech.flush()
            b.speech.end()
            await b.listen()
            assert b.segments() == ["one", "two", "three"]

    run(scene())


def test_flushing_nothing_is_nothing(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.flush()
            b.speech.push_text("one two")
            b.speech.flush()
            b.speech.flush()
            b.speech.end()
            await b.listen()
            assert b.segments() == ["one two"]

    run(scene())


def test_each_generation_draws_noise_of_its_own(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        seeds = []
        async with bench() as b:
            for word in ("one", "two"):
                b.speech.push_text(word)
                await turns(3)
                b.speech.flush()
                await turns(2)
                seeds.append(int(b.engine.tables.control[b.engine.opened[-1].slot, Field.SEED]))
                await turns()
            assert b.speech.seed == 1000
            assert seeds == [1000, 1001]

    run(scene())


# Credit


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


# How it ends


def test_the_reason_is_known_only_at_the_end(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two three.")
            b.speech.end()
            async for chunk in b.speech:
                assert chunk.frames == 0 or b.speech.finish_reason is None
            assert b.speech.finish_reason is FinishReason.END
            with pytest.raises(StopAsyncIteration):
                await anext(b.speech)

    run(scene())


def test_endless_speech_is_cut_in_proportion_to_its_text(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        limits = FrameLimits(frames_floor=5, frames_per_token=3)
        async with bench(limits=limits, engine=FakeEngine(tail=10_000)) as b:
            await b.say(STORY)
            assert b.speech.finish_reason is FinishReason.LENGTH
            assert len(b.codec.frames) == 3 * len(b.tokenizer.encode_plain(STORY))

    run(scene())


def test_one_generation_that_was_cut_marks_the_whole_speech(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        engine = FakeEngine(tail=10_000)
        async with bench(limits=FrameLimits(frames_floor=6), engine=engine) as b:
            b.speech.push_text("one")
            b.speech.flush()
            await turns()
            engine._tail = 1
            await b.say("two")
            assert [g.finish_reason for g in engine.opened] == [FinishReason.LENGTH, FinishReason.END]
            assert b.speech.finish_reason is FinishReason.LENGTH

    run(scene())


@pytest.mark.parametrize("max_frames", [1, 2, 7, 12])
def test_max_frames_is_never_passed(bench: Callable[..., Bench], max_frames: int) -> None:
    async def scene() -> None:
        async with bench(max_frames=max_frames, rules=TextRules(segment_tokens=4)) as b:
            await b.say(STORY)
            assert len(b.codec.frames) == max_frames
            assert b.speech.finish_reason is FinishReason.LENGTH
            # With its text known the talker ends by itself, and makes no frame too many.
            assert b.engine.aborted == []

    run(scene())


def test_max_frames_is_not_passed_while_text_still_comes(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(max_frames=5) as b:
            b.speech.push_text(STORY)
            chunks = await b.listen()
            assert sum(chunk.frames for chunk in chunks) == 5
            assert b.speech.finish_reason is FinishReason.LENGTH
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_text_left_unsaid_at_max_frames_makes_the_speech_cut(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        tokens = 1
        async with bench(max_frames=tokens + 2) as b:
            b.speech.push_text("one")
            assert len(b.tokenizer.encode_plain("one")) == tokens
            b.speech.flush()
            await turns()
            assert b.engine.opened[0].finish_reason is FinishReason.END
            await b.say("two")
            assert b.speech.finish_reason is FinishReason.LENGTH

    run(scene())


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_to_say_is_told_at_the_end(bench: Callable[..., Bench], text: str) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text(text)
            with pytest.raises(EmptyText):
                b.speech.end()
            assert await b.listen() == []
            await turns()
            assert b.engine.opened == []
            assert b.over == [b.speech]

    run(scene())


def test_the_slot_is_given_back_before_the_last_audio_is_taken(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two.")
            b.speech.end()
            await turns()
            assert b.over == [b.speech]
            assert len(b.engine.free_slots) == 2
            assert audio_frames(await b.listen()) == list(range(len(b.codec.frames)))

    run(scene())


# Words


def test_all_words_are_told_by_the_end(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4)) as b:
            chunks = await b.say(STORY)
            words = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in words] == STORY.split()
            assert all(STORY[word.start : word.end] == word.text for word in words)
            assert all(a.end_ms <= b.start_ms for a, b in pairwise(words))
            assert words[-1].end_ms <= 80 * len(b.codec.frames)

    run(scene())


def test_words_are_placed_in_the_audio_of_their_own_generation(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        engine = FakeEngine(tail=60)
        async with bench(engine=engine) as b:
            b.speech.push_text("one two")
            b.speech.flush()
            await turns(200)
            first_ms = 80 * len(b.codec.frames)
            engine._tail = 2
            chunks = await b.say(" three four")
            words = [word for chunk in chunks for word in chunk.words]
            assert words[1].end_ms == pytest.approx(first_ms, abs=80)
            assert words[2].start_ms == pytest.approx(first_ms, abs=80)

    run(scene())


def test_the_last_words_may_come_without_audio(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            *_, last = await b.say("one two.")
            assert last.frames == 0
            assert last.first_frame == len(b.codec.frames)
            assert last.words[-1].text == "two."
            assert b.speech.spoken_until(10**9) == len("one two.")

    run(scene())


# When something fails


def test_a_lost_engine_is_told_after_the_audio_already_made(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two three ")
            await turns()
            made = len(b.codec.frames)
            assert made
            b.engine.die()
            await turns()
            heard: list[SpeechChunk] = []

            async def listen() -> None:
                async for chunk in b.speech:
                    heard.append(chunk)  # noqa: PERF401 - what was heard before the error counts

            with pytest.raises(EngineLost):
                await listen()
            assert audio_frames(heard) == list(range(made))
            assert b.speech.finish_reason is None

    run(scene())


def test_an_engine_lost_between_generations_is_told(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one")
            b.speech.flush()
            await turns()
            b.engine.die()
            b.speech.push_text("two ")
            b.speech.end()
            with pytest.raises(EngineLost):
                await b.listen()

    run(scene())


def test_an_unforeseen_failure_fails_this_utterance_alone(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:

            def refuse(_: object) -> None:
                raise ValueError("codes must lie in [0, 512)")

            b.codec.push = refuse
            b.speech.push_text("one two.")
            with pytest.raises(GenerationFailed, match="the utterance failed"):
                await b.listen()
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_a_prompt_that_does_not_fit_fails_the_utterance_and_not_who_writes_its_text(
    bench: Callable[..., Bench],
) -> None:
    async def scene() -> None:
        async with bench(prompt=replace(PROMPT, context=np.repeat(PROMPT.context, 200, axis=0))) as b:
            b.speech.push_text("one two three, and so on. ")
            b.speech.push_text("more")
            b.speech.end()
            with pytest.raises(GenerationFailed, match="the utterance failed"):
                await b.listen()
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_a_broken_codec_is_told(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.codec.broken = EngineLost("the codec worker died")
            with pytest.raises(EngineLost, match="codec"):
                await anext(b.speech)

    run(scene())


# Stopping


def test_closing_while_speaking_frees_slot_and_codec(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(ahead_frames=3) as b:
            b.speech.push_text(STORY)
            await anext(b.speech)
            await b.speech.aclose()
            assert b.engine.aborted == b.engine.opened
            assert len(b.engine.free_slots) == 2
            assert b.codec.closed == 1
            assert b.over == [b.speech]

    run(scene())


@pytest.mark.parametrize("after", range(12))
def test_closing_at_any_moment_frees_the_slot_once(bench: Callable[..., Bench], after: int) -> None:
    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=2)) as b:
            b.speech.push_text("one. two. ")
            b.speech.end()
            await turns(after)
            await b.speech.aclose()
            await turns()
            assert sorted(b.engine.free_slots) == [0, 1]
            assert b.over == [b.speech]

    run(scene())


def test_closing_before_any_text_is_quiet(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            await b.speech.aclose()
            await b.speech.aclose()
            assert b.engine.opened == []
            assert await b.listen() == []
            assert b.speech.finish_reason is None

    run(scene())


def test_closing_ends_an_iteration_under_way(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            listening = asyncio.create_task(b.listen())
            await turns()
            await b.speech.aclose()
            assert await listening == []

    run(scene())


def test_cancelling_an_iteration_loses_nothing(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            waiting = asyncio.create_task(anext(b.speech))
            await turns()
            waiting.cancel()
            await asyncio.wait([waiting])
            chunks = await b.say("one two.")
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))

    run(scene())


def test_cancelling_the_close_still_closes_the_codec(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(ahead_frames=3) as b:
            b.engine.ask_release = b.engine.aborted.append
            b.speech.push_text(STORY)
            await anext(b.speech)
            closing = asyncio.create_task(b.speech.aclose())
            await turns()
            closing.cancel()
            await asyncio.wait([closing])
            assert b.codec.closed == 1
            b.engine.opened[0].released()
            await b.speech.aclose()
            assert len(b.engine.free_slots) == 2

    run(scene())


# Silence, and speech that does not end


def test_silence_before_the_first_word_is_cut_off_when_asked_for(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(trim_silence=True, ahead_frames=4) as b:
            b.codec.silent = lambda number: number < 7
            b.speech.push_text(STORY)
            b.speech.end()
            chunks: list[SpeechChunk] = []
            async for chunk in b.speech:
                chunks.append(chunk)
                # The listener hears what he is given; the rest comes for that alone.
                b.speech.advance(sum(chunk.frames for chunk in chunks))
            made = len(b.codec.frames)
            # The frame before the first sound stays, silent as it is.
            assert audio_frames(chunks)[1:] == list(range(7, made))
            assert [chunk.first_frame for chunk in chunks] == [
                sum(chunk.frames for chunk in chunks[:n]) for n in range(len(chunks))
            ]
            words = [word for chunk in chunks for word in chunk.words]
            assert words[-1].end == len(STORY.rstrip())
            assert words[-1].end_ms <= 80 * (made - 6)
            # The codec was told of all frames that are past, cut off or heard.
            assert max(b.codec.heard) == made

    run(scene())


@pytest.mark.parametrize("trim", [False, True])
def test_the_clock_hears_each_frame_of_audio_with_its_own_code(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, trim: bool
) -> None:
    heard: list[tuple[float, int]] = []
    segments: list[int] = []

    def listen(_clock: SpokenClock, pcm: NDArray[np.float32], codes: NDArray[np.int16]) -> None:
        assert len(pcm) == len(codes) * FRAME_SAMPLES
        heard.extend(zip(pcm[::FRAME_SAMPLES].tolist(), codes.tolist(), strict=True))

    def end(_clock: SpokenClock, _source_end: int | None = None) -> None:
        segments.append(len(heard))

    monkeypatch.setattr(SpokenClock, "audio", listen)
    monkeypatch.setattr(SpokenClock, "segment_end", end)

    async def scene() -> None:
        async with bench(rules=TextRules(segment_tokens=4), trim_silence=trim) as b:
            b.codec.silent = lambda number: trim and number < 4
            await b.say(STORY)
            made = b.codec.frames[3 if trim else 0 :]
            assert [code for _, code in heard] == [frame[0] for frame in made]
            levels = [level for level, _ in heard if level]
            assert levels == pytest.approx([0.1 + n / 1000 for n in range(4 if trim else 0, len(b.codec.frames))])
            # Each segment's last frame was made for no text, its end.
            ends = [n + 1 for n, (a, b) in enumerate(pairwise(made)) if a[0] < 0 <= b[0]]
            assert segments[: len(ends)] == ends
            assert len(ends) > 1

    run(scene())


def test_silence_is_kept_unless_asked_for(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.codec.silent = lambda number: number < 7
            chunks = await b.say(STORY)
            assert sum(chunk.frames for chunk in chunks) == len(b.codec.frames)

    run(scene())


def test_what_is_silent_throughout_is_still_heard(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(trim_silence=True) as b:
            b.codec.silent = lambda number: True  # noqa: ARG005 - every frame
            chunks = await b.say("hello.")
            assert sum(chunk.frames for chunk in chunks) == max(1, len(b.codec.frames) - MAX_TRIMMED_FRAMES)
            assert b.speech.finish_reason is FinishReason.END

    run(scene())


def test_speech_that_falls_silent_instead_of_ending_is_ended(bench: Callable[..., Bench]) -> None:
    async def scene(limits: FrameLimits) -> tuple[int, FinishReason | None]:
        # It would go on for as long as a slot lets it.
        async with bench(engine=FakeEngine(tail=10_000), limits=limits, ahead_frames=4) as b:
            tokens = len(b.tokenizer.encode_plain("one two three."))
            b.codec.silent = lambda number: number > tokens
            b.speech.push_text("one two three.")
            b.speech.end()
            heard = 0
            async for chunk in b.speech:
                heard += chunk.frames
                b.speech.advance(heard)
            return heard - tokens, b.speech.finish_reason

    guarded = run(scene(FrameLimits(silent_frames=10, frames_per_token=0)))
    assert 10 <= guarded[0] <= 10 + 8
    assert guarded[1] is FinishReason.LENGTH
    assert run(scene(FrameLimits(silent_frames=0, frames_per_token=0)))[0] > 300


def test_a_pause_in_the_text_is_no_end(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(limits=FrameLimits(silent_frames=3)) as b:
            tokens = len(b.tokenizer.encode_plain(STORY))
            b.codec.silent = lambda number: number < tokens - 1
            await b.say(STORY)
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert b.speech.finish_reason is FinishReason.END

    run(scene())


def test_endless_speech_is_cut_by_its_texts_length_unless_that_is_switched_off(bench: Callable[..., Bench]) -> None:
    async def scene(limits: FrameLimits) -> int:
        async with bench(engine=FakeEngine(tail=10_000), limits=limits) as b:
            return sum(chunk.frames for chunk in await b.say("one two three."))

    tokens_3 = run(scene(FrameLimits(frames_floor=5, frames_per_token=3)))
    assert tokens_3 < 40
    # The slot's own end.
    assert run(scene(FrameLimits(frames_per_token=0))) == 399


def test_whole_text_speech_waits_for_its_text(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(prompt=replace(PROMPT, layout=TextLayout.NON_STREAMING)) as b:
            b.speech.push_text("one two ")
            await turns()
            assert not b.codec.frames
            assert b.speech.waiting_for_text
            b.speech.push_text("three.")
            b.speech.end()
            await b.listen()
            assert b.segments() == ["one two three."]

    run(scene())


def test_the_first_words_are_on_their_way_before_the_rest_is_read(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with bench() as b:
            read: list[tuple[int, int]] = []
            push = b.speech._text.push

            def note(fragment: str) -> list[SpeechToken]:
                read.append((len(fragment), len(b.engine.opened)))
                return push(fragment)

            monkeypatch.setattr(b.speech._text, "push", note)
            b.speech.push_text(STORY)
            assert read == [(FIRST_CHARACTERS, 0), (len(STORY) - FIRST_CHARACTERS, 1)]
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())


def test_what_was_begun_for_nobody_is_given_back(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text(STORY)
            assert len(b.engine.free_slots) == 1
        assert len(b.engine.free_slots) == 2

    run(scene())


def test_an_engine_that_cannot_begin_is_told_of_when_sound_is_awaited(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.engine.dead = True
            b.speech.push_text(STORY)
            with pytest.raises(EngineLost):
                await b.listen()

    run(scene())


def test_a_first_fragment_that_is_too_long_leaves_nothing_behind(bench: Callable[..., Bench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=30) as b:
            with pytest.raises(TextTooLong):
                b.speech.push_text("a" * 31)
            assert b.speech.characters == 0
            b.speech.push_text("b" * 30)

    run(scene())
