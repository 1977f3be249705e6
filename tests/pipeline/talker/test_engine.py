"""What the engine decides without its process: the size of its slots, and whose a record is."""

from __future__ import annotations

import pytest
from voxgate.pipeline.checkpoint import TalkerCheckpoint
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.talker.engine import MAX_PREFIX, EngineOptions, TalkerEngine
from voxgate.pipeline.talker.tables import TableShape

from ...fakes.virtual_time import run


def shape_of(checkpoint: TalkerCheckpoint, max_frames: int) -> TableShape:
    return TalkerEngine(checkpoint, EngineOptions(slots=3, max_frames=max_frames)).shape


def test_a_slot_takes_no_more_text_than_it_has_frames_for(checkpoint: TalkerCheckpoint) -> None:
    assert shape_of(checkpoint, 400) == TableShape(3, MAX_PREFIX, 100, 400)


def test_long_slots_take_the_text_they_were_given_room_for(checkpoint: TalkerCheckpoint) -> None:
    assert shape_of(checkpoint, 8192) == TableShape(3, MAX_PREFIX, 512, 8192)


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
