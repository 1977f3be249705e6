"""The engine as an attached process sees it, with the speech process and the engine's process replaced by the test."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import astuple, replace

import numpy as np
import pytest
from fakes.waiting import until
from voxgate.pipeline.errors import AtCapacity, EngineLost
from voxgate.pipeline.interface import FinishReason
from voxgate.pipeline.ipc.engine_messages import AbortGeneration, Attach, Message, SubmitGeneration
from voxgate.pipeline.ipc.records import MAX_PROCESSES, RecordFlag, pack_release
from voxgate.pipeline.ipc.report_channel import ReportSender
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables
from voxgate.pipeline.ipc.wakeup import WakeupListener
from voxgate.pipeline.talker.generation import Generation
from voxgate.pipeline.talker.prompt_pool import PromptPrefix
from voxgate.pipeline.talker.remote_engine import RemoteTalkerEngine

from .generation.scripted_engine import PROMPT, SAMPLING, SHAPE, frame

PROCESS = 1


class Attachment:
    """An engine that this process, number 1, is attached to."""

    def __init__(self) -> None:
        run = uuid.uuid4().hex
        shape = replace(SHAPE, prefilled_prompts=2)
        self.tables, path = SlotTables.create(shape)
        self.wakeups = WakeupListener(f"voxgate-test-wakeup-{run}")
        self.sent: list[Message] = []
        self.losses: list[str] = []
        address = f"voxgate-test-reports-{run}"
        attach = Attach(PROCESS, 0, path, astuple(shape), address, f"voxgate-test-wakeup-{run}", "", 4, 8)
        self.engine = RemoteTalkerEngine(attach, self.sent.append, self.losses.append)
        self.reports = ReportSender(["", address], SHAPE.groups)

    def begin(self, slot: int = 0) -> Generation:
        generation = self.engine.open(slot)
        generation.prepare(PROMPT, SAMPLING, 9)
        generation.feed([3, 4], last=True)
        return generation

    def record(self, generation: Generation, number: int, flags: int = 0) -> None:
        header = np.array([generation.slot, generation.epoch, number, flags], np.int32)
        self.reports.send(np.concatenate([header, frame(number)[: SHAPE.groups]]).tobytes())


@contextlib.asynccontextmanager
async def attached() -> AsyncIterator[Attachment]:
    attachment = Attachment()
    try:
        yield attachment
    finally:
        attachment.engine.lose("the test is over")
        attachment.reports.close()
        attachment.wakeups.close()


async def test_generation_runs_through_speech_process_and_gets_its_frames() -> None:
    async with attached() as attachment:
        generation = attachment.begin()
        assert attachment.sent == [SubmitGeneration(0, generation.epoch, 4, claimed=False)]
        assert generation.epoch % MAX_PROCESSES == PROCESS
        attachment.record(generation, 0)
        attachment.record(generation, 1, RecordFlag.END)
        attachment.engine.end(generation.epoch, 2)
        assert [codes.tolist() async for codes in generation] == [frame(0)[: SHAPE.groups].tolist()]
        assert generation.finish_reason is FinishReason.END
        await generation.aclose()


@pytest.mark.parametrize("alike", [True, False])
async def test_reserved_prompt_is_continued_at_once_if_it_begins_alike(alike: bool) -> None:
    async with attached() as attachment:
        row = SHAPE.slots + 1
        generation = attachment.begin(1)
        prefix = PromptPrefix.of(attachment.tables, 1)
        assert prefix is not None
        prefix.write(attachment.tables, row)
        attachment.tables.prefix[row, 0, 0] += not alike
        attachment.engine.reserve(0, row)
        attachment.wakeups.read()
        generation = attachment.begin(0)
        assert attachment.tables.control[row, Field.SUCCESSOR] == (1 if alike else 0)
        assert attachment.wakeups.read() is alike, "the engine is notified in the same turn"
        assert attachment.sent[-1] == SubmitGeneration(0, generation.epoch, 4, claimed=alike)


async def test_reserved_prompt_is_for_one_generation() -> None:
    async with attached() as attachment:
        first = attachment.begin(0)
        prefix = PromptPrefix.of(attachment.tables, 0)
        assert prefix is not None
        prefix.write(attachment.tables, SHAPE.slots)
        first.on_released()
        attachment.engine.reserve(0, SHAPE.slots)
        for claimed in (True, False):
            generation = attachment.begin(0)
            assert attachment.sent[-1] == SubmitGeneration(0, generation.epoch, 4, claimed=claimed)
            generation.on_released()
        attachment.engine.reserve(0, SHAPE.slots)
        attachment.engine.reserve(0, None)
        generation = attachment.begin(0)
        assert attachment.sent[-1] == SubmitGeneration(0, generation.epoch, 4, claimed=False)


async def test_utterance_is_expected_by_process() -> None:
    async with attached() as attachment:
        began_s = time.monotonic()
        attachment.engine.expect_utterance()
        assert began_s <= attachment.tables.expected_s[PROCESS] <= time.monotonic()
        assert attachment.tables.expected_s.nonzero()[0].tolist() == [PROCESS]


async def test_slot_stays_taken_until_engine_confirms_release() -> None:
    async with attached() as attachment:
        generation = attachment.begin()
        closing = asyncio.create_task(generation.aclose())
        await until(lambda: attachment.sent[1:] == [AbortGeneration(0, generation.epoch)])
        with pytest.raises(AtCapacity):
            attachment.engine.open(0)
        attachment.reports.send(pack_release(0, generation.epoch))
        await closing
        attachment.engine.open(0)


async def test_freeing_slot_leaves_tables_to_their_next_owner() -> None:
    async with attached() as attachment:
        generation = attachment.begin()
        attachment.tables.control[0, Field.EPOCH] = 77  # another process's, which leased the slot meanwhile
        generation.on_released()
        assert attachment.tables.control[0, Field.EPOCH] == 77


@pytest.mark.parametrize("message", [b"", b"abc", bytes(4 * 7)], ids=["empty", "odd", "no whole record"])
async def test_malformed_report_ends_attachment(message: bytes) -> None:
    async with attached() as attachment:
        generation = attachment.begin()
        attachment.engine._receive(message)
        assert attachment.losses == ["the talker's engine sent a malformed report"]
        assert attachment.sent[1:] == [AbortGeneration(0, generation.epoch)], (
            "the engine and the lease of the slot go on"
        )
        with pytest.raises(EngineLost, match="malformed report"):
            await anext(generation)
        with pytest.raises(EngineLost):
            attachment.engine.open(1)


async def test_lost_engine_ends_generations_once() -> None:
    async with attached() as attachment:
        generation = attachment.begin()
        attachment.engine.lose("first")
        attachment.engine.lose("second")
        with pytest.raises(EngineLost, match="first"):
            await anext(generation)
        assert attachment.losses == [], "the caller knows of a loss that it reports itself"


async def test_generation_lost_in_speech_process_raises() -> None:
    async with attached() as attachment:
        generation = attachment.begin()
        attachment.engine.end(generation.epoch, None)
        attachment.engine.end(generation.epoch, 3)
        with pytest.raises(EngineLost):
            await anext(generation)
