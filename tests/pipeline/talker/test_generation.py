"""One generation: what it writes for its engine, what it makes of the records it gets, how it gives its slot back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from voxgate.pipeline.errors import EngineLost, GenerationFailed
from voxgate.pipeline.speech import FinishReason, TextLayout
from voxgate.pipeline.talker.frames import FrameFlag
from voxgate.pipeline.talker.generation import DRAIN_TIMEOUT_S, Generation, Sampling
from voxgate.pipeline.talker.prompt import SPEAKER, Prompt
from voxgate.pipeline.talker.tables import Field, Option, SlotTables, TableShape

from ...fakes.virtual_time import run

SHAPE = TableShape(slots=2, prefix=9, text=6, frames=10, groups=2, hidden=3)
PROMPT = Prompt(
    text=(7, 8, 5),
    head=np.array([[-1, -1], [9, -1], [6, -1]], np.int32),
    context=np.array([[2, -1]], np.int32),
    layout=TextLayout.STREAMING,
    filler=6,
)
SAMPLING = Sampling(0.5, 40, 0.75, 1.25, 0.625, 30, 0.875, 2**62 + 3)
END = FrameFlag.END


class ScriptedEngine:
    """Does nothing by itself: the test says when a request ends and when a slot is released."""

    def __init__(self) -> None:
        self.tables, _ = SlotTables.create(SHAPE)
        self.calls: list[str] = []
        self.prompt_len = 0
        self.freed: list[Generation] = []
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.generation = Generation(self.tables, 1, 17, self)

    @property
    def row(self) -> np.ndarray:
        return self.tables.control[1]

    def submit(self, generation: Generation, prompt_len: int) -> asyncio.Task[int]:
        self.calls.append("submit")
        self.prompt_len = prompt_len
        # What the engine reads when it looks at the new request.
        assert self.row[Field.EPOCH] == generation.epoch
        assert self.row[Field.TEXT_LEN] > 0

        async def request() -> int:
            return await self.outcome

        return asyncio.create_task(request())

    def wake(self) -> None:
        self.calls.append("wake")

    def ask_release(self, generation: Generation) -> None:  # noqa: ARG002 - there is one
        self.calls.append("ask release")

    def free(self, generation: Generation) -> None:
        self.freed.append(generation)


def frame(number: int) -> np.ndarray:
    return np.arange(4, dtype=np.int32) + 10 * number


def began() -> tuple[ScriptedEngine, Generation]:
    """A generation under way, with two tokens read."""
    engine = ScriptedEngine()
    generation = engine.generation
    generation.prepare(PROMPT, SAMPLING, 9)
    generation.feed([3, 4])
    return engine, generation


async def turns(count: int = 5) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def collect(generation: Generation) -> list[list[int]]:
    return [codes.tolist() async for codes in generation]


# A first frame that the engine decodes


async def test_a_first_frames_sound_goes_where_it_was_asked_to() -> None:
    engine = ScriptedEngine()
    heard: list[np.ndarray] = []
    engine.generation.decode_first(5, heard.append)
    assert engine.row[Field.CODEC] == 6
    engine.generation.take(0, FrameFlag.DECODED, frame(0))
    assert engine.generation.decoded
    assert (await anext(engine.generation)).tolist() == frame(0).tolist()
    engine.generation.hear(np.ones(3, np.float32))
    engine.generation.take(1, 0, frame(1))
    assert (await anext(engine.generation)).tolist() == frame(1).tolist()
    assert [pcm.tolist() for pcm in heard] == [[1, 1, 1]]


async def test_sound_that_did_not_come_is_missed() -> None:
    engine = ScriptedEngine()
    engine.generation.decode_first(5, lambda _: None)
    engine.generation.take(0, FrameFlag.DECODED, frame(0))
    engine.generation.take(1, 0, frame(1))
    with pytest.raises(GenerationFailed, match="sound"):
        await collect(engine.generation)


async def test_an_engine_that_decodes_nothing_owes_no_sound() -> None:
    engine = ScriptedEngine()
    engine.generation.decode_first(5, lambda _: None)
    engine.generation.take(0, 0, frame(0))
    engine.generation.take(1, 0, frame(1))
    assert not engine.generation.decoded
    assert engine.generation.frames == 2


# What it writes


async def test_preparing_fills_the_tables_and_starts_nothing() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, SAMPLING, 5)
    options = engine.tables.options[1]
    assert (options[Option.TEMPERATURE], options[Option.TOP_P]) == (0.5, 0.75)
    assert options[Option.REPETITION_PENALTY] == 1.25
    assert (options[Option.PREDICTOR_TEMPERATURE], options[Option.PREDICTOR_TOP_P]) == (0.625, 0.875)
    row = engine.row
    assert (row[Field.TOP_K], row[Field.PREDICTOR_TOP_K], row[Field.SEED]) == (40, 30, 2**62 + 3)
    assert (row[Field.FRAME_CAP], row[Field.EPOCH], row[Field.EARLY_END]) == (5, 0, 0)
    assert engine.calls == []


async def test_a_prompt_that_does_not_fit_is_refused() -> None:
    engine = ScriptedEngine()
    with pytest.raises(ValueError, match="the prompt has 10 positions, more than 9"):
        engine.generation.prepare(replace(PROMPT, text=(1,) * 10), SAMPLING, 5)
    # As many of text, its end, and the three on either side of it.
    with pytest.raises(ValueError, match="the prompt has 11 positions, more than 9"):
        engine.generation.prepare(replace(PROMPT, layout=TextLayout.NON_STREAMING), SAMPLING, 5)


async def test_the_first_tokens_start_the_generation() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, SAMPLING, 5)
    engine.generation.feed([])
    assert engine.calls == []
    engine.generation.feed([3, 4])
    assert engine.calls == ["submit"]
    # The prompt ends with the position of the first text token.
    assert engine.prompt_len == 4
    assert engine.tables.prefix[1, :3, 0].tolist() == [7, 8, 5]
    assert engine.tables.prefix[1, :4, 1:].tolist() == [[-1, -1], [9, -1], [6, -1], [2, -1]]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD]) == (3, 0)
    assert engine.row[Field.EPOCH] == 17
    assert engine.tables.text[1, :2].tolist() == [3, 4]


async def test_a_text_known_whole_stands_before_the_speech() -> None:
    engine = ScriptedEngine()
    head = np.array([[9, -1]], np.int32)
    engine.generation.prepare(replace(PROMPT, text=(7,), head=head, layout=TextLayout.NON_STREAMING), SAMPLING, 5)
    engine.generation.feed([3])
    engine.generation.feed([4])
    assert engine.calls == []
    engine.generation.close_text()
    assert engine.calls == ["submit"]
    # Two tokens, then their end, meet the filler; then speech begins.
    assert engine.tables.prefix[1, :5, 1:].tolist() == [[9, -1], [6, -1], [6, -1], [6, -1], [2, -1]]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD], engine.prompt_len) == (4, 3, 5)


async def test_text_that_is_read_beside_a_reference_must_be_there_first() -> None:
    engine = ScriptedEngine()
    frames = np.array([[2, -1], [1, 1], [1, 2], [1, 3]], np.int32)
    engine.generation.prepare(replace(PROMPT, text=(7, 8, 5, 0), context=frames), SAMPLING, 5)
    engine.generation.feed([3, 4])
    assert engine.calls == []
    engine.generation.feed([5])
    assert engine.calls == ["submit"]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD], engine.prompt_len) == (6, 2, 7)


async def test_a_text_that_ends_sooner_is_enough() -> None:
    engine = ScriptedEngine()
    frames = np.array([[2, -1], [1, 1], [1, 2], [1, 3]], np.int32)
    engine.generation.prepare(replace(PROMPT, context=frames), SAMPLING, 5)
    engine.generation.feed([3])
    engine.generation.close_text()
    assert engine.calls == ["submit"]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD]) == (6, 3)


async def test_a_reference_text_may_outlast_its_frames() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(replace(PROMPT, text=(7, 8, 5, 0, 1, 2)), SAMPLING, 5)
    engine.generation.feed([3])
    assert engine.tables.prefix[1, :6, 0].tolist() == [7, 8, 5, 0, 1, 2]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD]) == (3, -3)


async def test_closing_a_text_that_never_began_starts_nothing() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, SAMPLING, 5)
    engine.generation.close_text()
    assert "submit" not in engine.calls


async def test_a_speaker_vector_goes_to_the_slot() -> None:
    engine = ScriptedEngine()
    head = PROMPT.head.copy()
    head[1, 0] = SPEAKER
    vector = np.array([0.5, -1, 2], np.float32)
    engine.generation.prepare(replace(PROMPT, head=head, speaker_vector=vector), SAMPLING, 5)
    assert engine.tables.speaker[1].tolist() == [0.5, -1, 2]


async def test_speech_may_be_allowed_to_end_before_its_text() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, replace(SAMPLING, early_end=True), 5)
    assert engine.row[Field.EARLY_END] == 1


async def test_later_tokens_are_appended_and_wake_the_engine() -> None:
    engine, generation = began()
    generation.feed([5])
    assert engine.calls == ["submit", "wake"]
    assert engine.tables.text[1, :3].tolist() == [3, 4, 5]
    assert (generation.tokens, generation.room) == (3, 3)


async def test_text_beyond_the_slot_is_refused_whole() -> None:
    engine, generation = began()
    with pytest.raises(ValueError, match="7 text tokens do not fit into 6"):
        generation.feed([1] * 5)
    assert generation.tokens == 2
    generation.feed([1] * 4)
    assert generation.room == 0
    assert engine.row[Field.TEXT_LEN] == 6


async def test_closing_the_text_wakes_the_engine() -> None:
    engine, generation = began()
    generation.close_text()
    assert engine.row[Field.CLOSED] == 1
    assert engine.calls[-1] == "wake"


async def test_credit_only_grows() -> None:
    engine, generation = began()
    for frames, credit in ((4, 4), (2, 4), (4, 4), (6, 6), (-1, 6)):
        generation.grant(frames)
        assert engine.row[Field.CREDIT] == credit
    assert engine.calls == ["submit", "wake", "wake"]


async def test_the_engine_is_told_once_of_a_text_that_was_there_at_once() -> None:
    engine = ScriptedEngine()
    generation = engine.generation
    generation.prepare(PROMPT, SAMPLING, 9)
    generation.grant(4)
    assert engine.calls == [], "nothing runs yet that could wait for credit"
    generation.feed([3, 4], last=True)
    assert engine.calls == ["submit"]
    assert engine.row[Field.TEXT_LEN] == 2
    assert engine.row[Field.CLOSED] == 1


async def test_the_cap_lies_within_the_slot() -> None:
    engine, generation = began()
    generation.cap(1000)
    assert engine.row[Field.FRAME_CAP] == SHAPE.frames - 1
    generation.cap(3)
    assert engine.row[Field.FRAME_CAP] == 3


# What it makes of records


def test_frames_come_out_in_order_and_then_the_reason() -> None:
    async def play() -> None:
        engine, generation = began()
        for number in range(3):
            generation.take(number, 0, frame(number))
        generation.take(3, END, frame(0))
        engine.outcome.set_result(4)
        codes = [codes async for codes in generation]
        assert [c.tolist() for c in codes] == [frame(n).tolist() for n in range(3)]
        assert {c.dtype for c in codes} == {np.dtype(np.int16)}
        assert generation.finish_reason is FinishReason.END

    run(play())


def test_speech_cut_at_the_cap_says_so() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(0, END | FrameFlag.CAPPED, frame(0))
        engine.outcome.set_result(1)
        assert await collect(generation) == []
        assert generation.finish_reason is FinishReason.LENGTH

    run(play())


def test_each_frame_is_handed_out_when_it_comes() -> None:
    async def play() -> None:
        _engine, generation = began()
        for number in range(3):
            taking = asyncio.create_task(anext(generation))
            await turns()
            assert not taking.done()
            generation.take(number, 0, frame(number))
            assert (await taking).tolist() == frame(number).tolist()
            assert generation.finish_reason is None

    run(play())


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_frame_out_of_order_fails_the_generation(number: int) -> None:
    async def play() -> None:
        _engine, generation = began()
        generation.take(0, 0, frame(0))
        generation.take(number, 0, frame(9))
        assert (await anext(generation)).tolist() == frame(0).tolist()
        with pytest.raises(GenerationFailed, match=f"frame {number} arrived where 1 was due"):
            await anext(generation)

    run(play())


def test_an_engine_lost_is_told_after_the_frames_already_here() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(0, 0, frame(0))
        engine.outcome.set_exception(EngineLost("gone"))
        await turns()
        assert (await anext(generation)).tolist() == frame(0).tolist()
        for _ in range(2):
            with pytest.raises(EngineLost, match="gone"):
                await anext(generation)

    run(play())


def test_an_engine_lost_ends_a_wait_for_frames() -> None:
    async def play() -> None:
        engine, generation = began()
        waiting = asyncio.create_task(anext(generation))
        await turns()
        engine.outcome.set_exception(EngineLost("gone"))
        with pytest.raises(EngineLost):
            await waiting

    run(play())


def test_speech_that_is_complete_is_not_failed_by_a_loss_after_it() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(0, 0, frame(0))
        generation.take(1, END, frame(0))
        engine.outcome.set_exception(EngineLost("gone"))
        await turns()
        assert await collect(generation) == [frame(0).tolist()]
        assert generation.finish_reason is FinishReason.END

    run(play())


def test_frames_that_trail_the_finish_are_waited_for() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(0, 0, frame(0))
        engine.outcome.set_result(3)
        collecting = asyncio.create_task(collect(generation))
        await asyncio.sleep(0.9 * DRAIN_TIMEOUT_S)
        assert not collecting.done()
        generation.take(1, 0, frame(1))
        generation.take(2, END, frame(0))
        assert await collecting == [frame(0).tolist(), frame(1).tolist()]

    run(play())


def test_frames_that_never_come_are_not_waited_for_forever() -> None:
    async def play() -> None:
        engine, generation = began()
        engine.outcome.set_result(3)
        with pytest.raises(GenerationFailed, match="last frames did not arrive"):
            await anext(generation)
        assert asyncio.get_running_loop().time() == pytest.approx(DRAIN_TIMEOUT_S)

    run(play())


def test_a_request_that_ends_without_end_of_speech_failed() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(0, 0, frame(0))
        engine.outcome.set_result(1)
        assert (await anext(generation)).tolist() == frame(0).tolist()
        with pytest.raises(GenerationFailed, match="gave up"):
            await anext(generation)

    run(play())


def test_cancelling_a_wait_loses_no_frame() -> None:
    async def play() -> None:
        _engine, generation = began()
        waiting = asyncio.create_task(anext(generation))
        await turns()
        generation.take(0, 0, frame(0))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert (await anext(generation)).tolist() == frame(0).tolist()

    run(play())


# How it ends


def test_closing_what_never_began_frees_the_slot_at_once() -> None:
    async def play() -> None:
        engine = ScriptedEngine()
        engine.generation.prepare(PROMPT, SAMPLING, 5)
        await engine.generation.aclose()
        assert engine.freed == [engine.generation]
        assert engine.calls == []

    run(play())


def test_closing_after_the_end_frees_the_slot_when_the_request_is_over() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(0, END, frame(0))
        closing = asyncio.create_task(generation.aclose())
        await turns()
        assert engine.freed == []
        engine.outcome.set_result(1)
        await closing
        assert engine.freed == [generation]
        assert "ask release" not in engine.calls

    run(play())


def test_an_aborted_generation_keeps_its_slot_until_the_engine_confirms() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await turns()
        assert engine.outcome.cancelled()
        assert engine.calls[-1] == "ask release"
        assert engine.freed == []
        assert not closing.done()
        generation.released()
        await closing
        assert engine.freed == [generation]

    run(play())


def test_the_release_is_asked_for_only_after_the_abort() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await asyncio.sleep(0)
        assert "ask release" not in engine.calls
        await turns()
        assert engine.calls[-1] == "ask release"
        generation.released()
        await closing

    run(play())


def test_a_release_that_does_not_come_is_not_waited_for_forever() -> None:
    async def play() -> None:
        engine, generation = began()
        await generation.aclose()
        assert asyncio.get_running_loop().time() == pytest.approx(DRAIN_TIMEOUT_S)
        # Only the engine's word frees the slot, late as it may be.
        assert engine.freed == []
        generation.released()
        assert engine.freed == [generation]

    run(play())


def test_closing_twice_frees_once() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await turns()
        await generation.aclose()
        generation.released()
        await closing
        await generation.aclose()
        assert engine.freed == [generation]
        assert engine.calls.count("ask release") == 1

    run(play())


def test_closing_after_the_engine_was_lost_waits_for_nothing() -> None:
    async def play() -> None:
        engine, generation = began()
        engine.outcome.set_exception(EngineLost("gone"))
        await turns()
        await generation.aclose()
        assert asyncio.get_running_loop().time() == 0
        assert engine.freed == [generation]

    run(play())


def test_closing_a_generation_that_failed_alone_asks_for_its_release() -> None:
    async def play() -> None:
        engine, generation = began()
        generation.take(5, 0, frame(5))
        closing = asyncio.create_task(generation.aclose())
        await turns()
        assert engine.calls[-1] == "ask release"
        generation.released()
        await closing
        assert engine.freed == [generation]

    run(play())


def test_cancelling_the_close_only_stops_the_waiting() -> None:
    async def play() -> None:
        engine, generation = began()
        closing = asyncio.create_task(generation.aclose())
        await turns()
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert engine.freed == []
        generation.released()
        assert engine.freed == [generation]

    run(play())
