"""What the engine decides without its process: the size of its slots, and whose a record is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from voxgate.pipeline.checkpoint import TalkerCheckpoint
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.talker.engine import MAX_INSTRUCTION, MAX_REFERENCE_TEXT, EngineOptions, TalkerEngine
from voxgate.pipeline.talker.tables import TableShape
from voxgate.pipeline.voice import MAX_REFERENCE_FRAMES

from ...fakes.virtual_time import run


def shape_of(checkpoint: TalkerCheckpoint, max_frames: int) -> TableShape:
    return TalkerEngine(checkpoint, EngineOptions(slots=3, max_frames=max_frames)).shape


def test_a_slot_takes_no_more_text_than_it_has_frames_for(checkpoint: TalkerCheckpoint) -> None:
    assert shape_of(checkpoint, 400) == TableShape(3, 16 + 100, 100, 400, 16, 320)


def test_long_slots_take_the_text_they_were_given_room_for(checkpoint: TalkerCheckpoint) -> None:
    assert shape_of(checkpoint, 8192) == TableShape(3, 16 + 512, 512, 8192, 16, 320)


def test_prompts_have_room_for_what_the_model_takes(checkpoint: TalkerCheckpoint) -> None:
    plain = shape_of(checkpoint, 400).prefix
    assert shape_of(replace(checkpoint, model_size="1b7"), 400).prefix == plain + MAX_INSTRUCTION
    reference = MAX_REFERENCE_TEXT + MAX_REFERENCE_FRAMES
    assert shape_of(replace(checkpoint, model_type="base"), 400).prefix == plain + reference


def test_on_a_cpu_every_slot_can_be_full_at_once(checkpoint: TalkerCheckpoint) -> None:
    options = TalkerEngine(checkpoint, EngineOptions(slots=3, max_frames=400)).options
    size = checkpoint.talker
    assert options.kv_cache_bytes is not None
    assert options.kv_cache_bytes // (8 * size.layers * size.kv_heads * size.head_dim) > 3 * (16 + 100 + 400)
    assert TalkerEngine(checkpoint, EngineOptions(kv_cache_bytes=5)).options.kv_cache_bytes == 5
    assert TalkerEngine(checkpoint, EngineOptions(device="cuda")).options.kv_cache_bytes is None


def test_nothing_can_be_opened_before_the_start(checkpoint: TalkerCheckpoint) -> None:
    engine = TalkerEngine(checkpoint, EngineOptions(slots=3))
    assert not engine.alive
    assert engine.free_slots == 3
    with pytest.raises(EngineLost, match="not running"):
        engine.open()


def test_closing_what_was_never_started_is_harmless(checkpoint: TalkerCheckpoint) -> None:
    async def scene() -> None:
        engine = TalkerEngine(checkpoint, EngineOptions())
        await engine.close()
        await engine.close()

    run(scene())
