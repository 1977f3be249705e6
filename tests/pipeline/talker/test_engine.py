"""The engine without its process: sizes of slots, delivery of reports, prefilled prompts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fakes.waiting import block_until
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.cloned_voice import MAX_REFERENCE_FRAMES
from voxgate.pipeline.errors import EngineError, EngineLost
from voxgate.pipeline.ipc.records import (
    HEARTBEAT,
    MAX_PROCESSES,
    pack_pcm,
    pack_prefill,
    pack_release,
    pack_step,
    split_by_process,
    unpack_records,
)
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables, TableShape
from voxgate.pipeline.ipc.wakeup import WakeupListener, WakeupSender
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Generation, Sampling
from voxgate.pipeline.talker.prompt import MAX_INSTRUCTION_TOKENS, MAX_REFERENCE_TEXT_TOKENS, custom_voice_prompt
from voxgate.pipeline.talker.prompt_pool import REFILL_DELAY_S, PrefilledPromptPool
from voxgate.pipeline.talker.vllm import compat
from voxgate.pipeline.talker.vllm.config import EngineOptions

from ...fakes.virtual_time import run

SAMPLING = Sampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0, seed=1)


def shape_of(checkpoint: TalkerCheckpoint, max_frames: int) -> TableShape:
    return TalkerEngine(checkpoint, EngineOptions(slots=3, max_frames=max_frames)).shape


def test_slot_text_is_limited_by_its_frames(checkpoint: TalkerCheckpoint) -> None:
    assert shape_of(checkpoint, 400) == TableShape(3, 16 + 100, 100, 400, 16, 320)


def test_long_slot_text_is_limited_by_maximum(checkpoint: TalkerCheckpoint) -> None:
    assert shape_of(checkpoint, 8192) == TableShape(3, 16 + 512, 512, 8192, 16, 320)


def test_prefix_has_room_for_longest_prompt_of_model(checkpoint: TalkerCheckpoint) -> None:
    plain = shape_of(checkpoint, 400).prefix
    assert shape_of(replace(checkpoint, model_size="1b7"), 400).prefix == plain + MAX_INSTRUCTION_TOKENS
    reference = MAX_REFERENCE_TEXT_TOKENS + MAX_REFERENCE_FRAMES
    assert shape_of(replace(checkpoint, model_type="base"), 400).prefix == plain + reference


def test_cpu_cache_holds_all_slots_full_at_once(checkpoint: TalkerCheckpoint) -> None:
    options = TalkerEngine(checkpoint, EngineOptions(slots=3, max_frames=400)).options
    size = checkpoint.talker
    assert options.kv_cache_bytes is not None
    assert options.kv_cache_bytes // (8 * size.layers * size.kv_heads * size.head_dim) > 3 * (16 + 100 + 400)
    assert TalkerEngine(checkpoint, EngineOptions(kv_cache_bytes=5)).options.kv_cache_bytes == 5
    assert TalkerEngine(checkpoint, EngineOptions(device="cuda")).options.kv_cache_bytes is None


def test_open_before_start_raises(checkpoint: TalkerCheckpoint) -> None:
    engine = TalkerEngine(checkpoint, EngineOptions(slots=3))
    assert not engine.alive
    assert engine.free_slots == 3
    with pytest.raises(EngineLost, match="not running"):
        engine.open()


def test_close_before_start_is_harmless(checkpoint: TalkerCheckpoint) -> None:
    async def scene() -> None:
        engine = TalkerEngine(checkpoint, EngineOptions())
        await engine.close()
        await engine.close()

    run(scene())


async def test_unsupported_vllm_ends_start_with_one_sentence(
    checkpoint: TalkerCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(device: str) -> None:
        raise EngineError(f"vLLM 9.9 has no name for {device}")

    monkeypatch.setattr(compat, "check", check)
    engine = TalkerEngine(checkpoint, EngineOptions(slots=1))
    with pytest.raises(EngineError, match=r"^vLLM 9.9 has no name for cpu$"):
        await engine.start()
    assert not engine.alive


# An engine whose process is a fake


def started(engine: TalkerEngine) -> TalkerEngine:
    engine._tables, _ = SlotTables.create(engine.shape)
    engine._process.llm = SimpleNamespace(errored=False)  # type: ignore[assignment] # a fake
    return engine


def test_process_loss_fails_all_generations(checkpoint: TalkerCheckpoint) -> None:
    async def scene() -> None:
        engine = started(TalkerEngine(checkpoint, EngineOptions(slots=3)))
        generation = engine.open()
        engine._process.declare_lost("the talker's engine hangs")
        with pytest.raises(EngineLost, match="hangs"):
            await anext(generation)
        with pytest.raises(EngineLost, match="not running"):
            engine.open()

    run(scene())


def test_reports_reach_owner_and_step_times(checkpoint: TalkerCheckpoint) -> None:
    async def scene() -> None:
        engine = started(TalkerEngine(checkpoint, EngineOptions(slots=3)))
        generation = engine.open()
        codes = np.arange(16, dtype=np.int32)

        def frame(epoch: int, number: int) -> np.ndarray:
            return np.concatenate([np.array([generation.slot, epoch, number, 0], np.int32), codes])

        engine._receive(frame(generation.epoch - 1, 0).tobytes())  # of an earlier generation in the slot
        engine._receive(frame(generation.epoch, 0).tobytes())
        for _ in range(5):
            engine._receive(pack_step(2, 0.025))
        engine._receive(HEARTBEAT)
        assert (await anext(generation)).tolist() == codes.tolist()
        assert generation.frames == 1
        assert engine.times.curve(0.0).at(2) == pytest.approx(0.025)

    run(scene())


def test_first_frame_audio_reaches_its_generation_only(checkpoint: TalkerCheckpoint) -> None:
    async def scene() -> None:
        engine = started(TalkerEngine(checkpoint, EngineOptions(slots=3)))
        generation = engine.open()
        received: list[float] = []
        generation.decode_first(1, True, lambda pcm: received.append(float(pcm[0])))
        for epoch, level in ((generation.epoch - MAX_PROCESSES, 0.25), (generation.epoch, 0.5)):
            engine._receive(pack_pcm(generation.slot, epoch, np.full(1920, level, np.float32)))
        assert received == [0.5], "the other report was of an earlier generation in the slot"

    run(scene())


def test_generation_continues_from_prefilled_prompt(checkpoint: TalkerCheckpoint) -> None:
    async def scene() -> None:
        engine = started(TalkerEngine(checkpoint, EngineOptions(slots=3, prefilled_prompts=2)))
        assert engine._tables is not None
        engine._prompt_pool = PrefilledPromptPool(engine._prefill, engine._tables, 3, 2)
        requested: list[tuple[str, int, int]] = []

        async def never_end(name: str, slot: int, prompt_len: int) -> int:
            requested.append((name, slot, prompt_len))
            return await asyncio.get_running_loop().create_future()

        engine._process.run = never_end  # type: ignore[method-assign]  # a fake

        def begin() -> Generation:
            generation = engine.open()
            generation.prepare(custom_voice_prompt(checkpoint, "heart", "auto"), SAMPLING, 9)
            generation.feed([1, 2])
            return generation

        first = begin()
        await asyncio.sleep(2 * REFILL_DELAY_S)
        positions = requested[0][2]
        assert requested == [
            (str(first.epoch), first.slot, positions),
            ("prefill1", 3, positions - 1),
            ("prefill2", 4, positions - 1),
        ]
        engine._receive(pack_prefill(3))
        second = begin()
        assert len(requested) == 3, "no request is sent to vLLM"
        assert engine._tables.control[3, Field.SUCCESSOR] == second.slot + 1
        third = begin()
        await asyncio.sleep(0.01)
        assert requested[3] == (str(third.epoch), third.slot, positions), "none is ready"

    run(scene())


def test_utterance_is_expected_from_that_moment(checkpoint: TalkerCheckpoint) -> None:
    engine = TalkerEngine(checkpoint, EngineOptions(slots=3))
    engine.expect_utterance()  # before the engine is started
    tables = started(engine)._tables
    assert tables is not None
    began_s = time.monotonic()
    engine.expect_utterance()
    assert began_s <= tables.expected_s[0] <= time.monotonic()
    assert tables.expected_s.nonzero()[0].tolist() == [0]


def test_reports_are_split_by_process_of_generation() -> None:
    def record(slot: int, epoch: int, flags: int = 0) -> list[int]:
        return [slot, epoch, 0, flags, *range(16)]

    mine, theirs = record(1, MAX_PROCESSES * 3), record(2, MAX_PROCESSES * 5 + 2)
    message = np.array([mine, theirs, record(3, MAX_PROCESSES + 2)], np.int32).tobytes()
    parts = split_by_process(message, 16)
    assert {owner: unpack_records(part, 16)[:, 0].tolist() for owner, part in parts.items()} == {0: [1], 2: [2, 3]}
    assert split_by_process(np.array([mine], np.int32).tobytes(), 16).keys() == {0}
    assert split_by_process(pack_step(2, 0.025), 16).keys() == {0}
    assert split_by_process(HEARTBEAT, 16).keys() == {0}
    assert split_by_process(pack_release(7, MAX_PROCESSES + 2), 16).keys() == {0, 2}
    assert split_by_process(pack_release(7, MAX_PROCESSES), 16).keys() == {0}


def test_keep_awake_notifies_engine(checkpoint: TalkerCheckpoint) -> None:
    engine = TalkerEngine(checkpoint, EngineOptions(slots=1))
    engine.keep_awake()  # before the engine is started
    with contextlib.closing(WakeupListener(engine.wakeup_address)) as listener:
        engine._wakeup = WakeupSender(engine.wakeup_address)
        engine.keep_awake()
        block_until(listener.read)
        engine._wakeup.close()
