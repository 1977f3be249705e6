"""What a generation writes into its slot, and when it begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.ipc.slot_tables import SPEAKER, Field, Option

from .scripted_engine import PROMPT, SAMPLING, SHAPE, ScriptedEngine, began


async def test_prepare_fills_tables_without_starting() -> None:
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


async def test_prompt_that_does_not_fit_is_refused() -> None:
    engine = ScriptedEngine()
    with pytest.raises(ValueError, match="the prompt has 10 positions, more than 9"):
        engine.generation.prepare(replace(PROMPT, text=(1,) * 10), SAMPLING, 5)
    # As many of text, its end, and the three on either side of it.
    with pytest.raises(ValueError, match="the prompt has 11 positions, more than 9"):
        engine.generation.prepare(replace(PROMPT, layout=TextLayout.NON_STREAMING), SAMPLING, 5)


async def test_first_tokens_start_generation() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, SAMPLING, 5)
    engine.generation.feed([])
    assert engine.calls == []
    engine.generation.feed([3, 4])
    assert engine.calls == ["run"]
    # The prompt ends with the position of the first text token.
    assert engine.prompt_len == 4
    assert engine.tables.prefix[1, :3, 0].tolist() == [7, 8, 5]
    assert engine.tables.prefix[1, :4, 1:].tolist() == [[-1, -1], [9, -1], [6, -1], [2, -1]]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD]) == (3, 0)
    assert engine.row[Field.EPOCH] == 17
    assert engine.tables.text[1, :2].tolist() == [3, 4]


async def test_non_streaming_layout_puts_text_before_speech() -> None:
    engine = ScriptedEngine()
    head = np.array([[9, -1]], np.int32)
    engine.generation.prepare(replace(PROMPT, text=(7,), head=head, layout=TextLayout.NON_STREAMING), SAMPLING, 5)
    engine.generation.feed([3])
    engine.generation.feed([4])
    assert engine.calls == []
    engine.generation.close_text()
    assert engine.calls == ["run"]
    # Two tokens, then their end, meet the filler; then speech begins.
    assert engine.tables.prefix[1, :5, 1:].tolist() == [[9, -1], [6, -1], [6, -1], [6, -1], [2, -1]]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD], engine.prompt_len) == (4, 3, 5)


async def test_text_read_along_with_reference_is_needed_before_start() -> None:
    engine = ScriptedEngine()
    frames = np.array([[2, -1], [1, 1], [1, 2], [1, 3]], np.int32)
    engine.generation.prepare(replace(PROMPT, text=(7, 8, 5, 0), context=frames), SAMPLING, 5)
    engine.generation.feed([3, 4])
    assert engine.calls == []
    engine.generation.feed([5])
    assert engine.calls == ["run"]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD], engine.prompt_len) == (6, 2, 7)


async def test_closed_text_shorter_than_needed_starts_generation() -> None:
    engine = ScriptedEngine()
    frames = np.array([[2, -1], [1, 1], [1, 2], [1, 3]], np.int32)
    engine.generation.prepare(replace(PROMPT, context=frames), SAMPLING, 5)
    engine.generation.feed([3])
    engine.generation.close_text()
    assert engine.calls == ["run"]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD]) == (6, 3)


async def test_reference_text_longer_than_frames_gives_negative_lead() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(replace(PROMPT, text=(7, 8, 5, 0, 1, 2)), SAMPLING, 5)
    engine.generation.feed([3])
    assert engine.tables.prefix[1, :6, 0].tolist() == [7, 8, 5, 0, 1, 2]
    assert (engine.row[Field.PREFIX_LEN], engine.row[Field.TEXT_LEAD]) == (3, -3)


async def test_closing_empty_text_starts_nothing() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, SAMPLING, 5)
    engine.generation.close_text()
    assert "run" not in engine.calls


async def test_speaker_vector_is_written_to_slot() -> None:
    engine = ScriptedEngine()
    head = PROMPT.head.copy()
    head[1, 0] = SPEAKER
    vector = np.array([0.5, -1, 2], np.float32)
    engine.generation.prepare(replace(PROMPT, head=head, speaker_vector=vector), SAMPLING, 5)
    assert engine.tables.speaker[1].tolist() == [0.5, -1, 2]


async def test_early_end_is_written_to_slot() -> None:
    engine = ScriptedEngine()
    engine.generation.prepare(PROMPT, replace(SAMPLING, early_end=True), 5)
    assert engine.row[Field.EARLY_END] == 1


async def test_later_tokens_are_appended_and_wake_engine() -> None:
    engine, generation = began()
    generation.feed([5])
    assert engine.calls == ["run", "wake"]
    assert engine.tables.text[1, :3].tolist() == [3, 4, 5]
    assert (generation.tokens, generation.text_room) == (3, 3)


async def test_text_beyond_slot_is_refused_entirely() -> None:
    engine, generation = began()
    with pytest.raises(ValueError, match="7 text tokens do not fit into 6"):
        generation.feed([1] * 5)
    assert generation.tokens == 2
    generation.feed([1] * 4)
    assert generation.text_room == 0
    assert engine.row[Field.TEXT_LEN] == 6


async def test_closing_text_wakes_engine() -> None:
    engine, generation = began()
    generation.close_text()
    assert engine.row[Field.CLOSED] == 1
    assert engine.calls[-1] == "wake"


async def test_credit_only_grows() -> None:
    engine, generation = began()
    for frames, credit in ((4, 4), (2, 4), (4, 4), (6, 6), (-1, 6)):
        generation.grant(frames)
        assert engine.row[Field.CREDIT] == credit
    assert engine.calls == ["run", "wake", "wake"]


async def test_complete_text_starts_generation_with_one_call() -> None:
    engine = ScriptedEngine()
    generation = engine.generation
    generation.prepare(PROMPT, SAMPLING, 9)
    generation.grant(4)
    assert engine.calls == [], "nothing runs yet that could wait for credit"
    generation.feed([3, 4], last=True)
    assert engine.calls == ["run"]
    assert engine.row[Field.TEXT_LEN] == 2
    assert engine.row[Field.CLOSED] == 1


async def test_frame_cap_is_limited_by_slot() -> None:
    engine, generation = began()
    generation.cap(1000)
    assert engine.row[Field.FRAME_CAP] == SHAPE.frames - 1
    generation.cap(3)
    assert engine.row[Field.FRAME_CAP] == 3
