"""A first frame that the engine decodes."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.errors import GenerationFailed
from voxgate.pipeline.ipc.records import RecordFlag
from voxgate.pipeline.ipc.slot_tables import Field

from .scripted_engine import ScriptedEngine, collect, frame


async def test_first_frame_audio_is_delivered() -> None:
    engine = ScriptedEngine()
    heard: list[np.ndarray] = []
    engine.generation.decode_first(5, True, heard.append)
    assert engine.row[Field.CODEC_SLOT] == 6
    engine.generation.on_record(0, RecordFlag.DECODED, frame(0))
    assert engine.generation.decoded
    assert (await anext(engine.generation)).tolist() == frame(0).tolist()
    engine.generation.on_audio(np.ones(3, np.float32))
    engine.generation.on_record(1, 0, frame(1))
    assert (await anext(engine.generation)).tolist() == frame(1).tolist()
    assert [pcm.tolist() for pcm in heard] == [[1, 1, 1]]


async def test_missing_first_frame_audio_fails_generation() -> None:
    engine = ScriptedEngine()
    engine.generation.decode_first(5, True, lambda _: None)
    engine.generation.on_record(0, RecordFlag.DECODED, frame(0))
    engine.generation.on_record(1, 0, frame(1))
    with pytest.raises(GenerationFailed, match="audio"):
        await collect(engine.generation)


async def test_engine_without_decoder_delivers_no_audio() -> None:
    engine = ScriptedEngine()
    engine.generation.decode_first(5, True, lambda _: None)
    engine.generation.on_record(0, 0, frame(0))
    engine.generation.on_record(1, 0, frame(1))
    assert not engine.generation.decoded
    assert engine.generation.frames == 2


async def test_first_frame_behind_restored_state_is_marked() -> None:
    engine = ScriptedEngine()
    engine.generation.decode_first(5, False, lambda _: None)
    assert engine.row[Field.CODEC_SLOT] == -6


async def test_offer_after_first_frame_or_close_is_ignored() -> None:
    """The codec may answer late; the slot's row may be another generation's by then."""
    engine = ScriptedEngine()
    engine.generation.on_record(0, 0, frame(0))
    engine.generation.decode_first(5, False, lambda _: None)
    assert engine.row[Field.CODEC_SLOT] == 0
    engine = ScriptedEngine()
    await engine.generation.aclose()
    engine.generation.decode_first(5, False, lambda _: None)
    assert engine.row[Field.CODEC_SLOT] == 0
