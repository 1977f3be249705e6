"""The prefilled-prompt pool: which prefixes it keeps, in how many rows, and how they are claimed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from voxgate.pipeline.ipc.slot_tables import NO_ENTRY, SPEAKER, Field, SlotTables, TableShape
from voxgate.pipeline.talker.prompt_pool import (
    MAX_PREFIX_POSITIONS,
    REFILL_DELAY_S,
    URGENT_REFILL_DELAY_S,
    PrefilledPromptPool,
    PromptPrefix,
    claim_reserved,
)

from ...fakes.virtual_time import run

SHAPE = TableShape(slots=8, prefix=100, text=4, frames=4, groups=2, hidden=3, prefilled_prompts=4)


class Engine:
    """Takes prefill requests, which end when they are cancelled."""

    def __init__(self, rows: int = SHAPE.prefilled_prompts) -> None:
        self.tables, _ = SlotTables.create(replace(SHAPE, prefilled_prompts=rows))
        self.pool = PrefilledPromptPool(self.prefill, self.tables, SHAPE.slots, rows)
        self.reading: list[int] = []
        self.aborted: list[int] = []

    def prefill(self, row: int, positions: int) -> asyncio.Task[int]:
        assert positions == self.tables.control[row, Field.PREFIX_LEN]
        self.reading.append(row)

        async def go_on() -> int:
            try:
                return await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.aborted.append(row)
                raise

        return asyncio.create_task(go_on())

    def read_all(self) -> None:
        reading, self.reading = self.reading, []
        for row in reading:
            self.pool.on_report(row)

    async def replace_aborted(self) -> None:
        for row in self.aborted:
            self.pool.on_report(row)
        await asyncio.sleep(2 * REFILL_DELAY_S)
        self.read_all()

    def write(self, slot: int, voice: int, *, begin: int = 5, lead: int = 0) -> None:
        self.tables.control[slot] = 0
        self.tables.control[slot, Field.PREFIX_LEN], self.tables.control[slot, Field.TEXT_LEAD] = begin, lead
        self.tables.prefix[slot, :begin] = voice
        self.tables.prefix[slot, :begin, 2] = NO_ENTRY

    async def begin(self, slot: int, voice: int) -> asyncio.Task[int] | None:
        """An utterance; then what was missing is made again."""
        self.write(slot, voice)
        taken = self.pool.claim(slot)
        await asyncio.sleep(2 * REFILL_DELAY_S)
        return taken

    def make_first_frame(self, slot: int, voice: int) -> None:
        """An utterance that continues from a row, which is free at once."""
        self.write(slot, voice)
        assert self.pool.claim(slot) is not None
        (row,) = np.flatnonzero(self.tables.control[:, Field.SUCCESSOR] == slot + 1)
        self.pool.on_report(int(row))


def test_next_utterance_claims_prefilled_prompt() -> None:
    async def scene() -> None:
        engine = Engine()
        assert await engine.begin(0, 7) is None, "the pool is empty"
        assert engine.reading == [8, 9, 10, 11]
        assert engine.tables.prefix[8, :5].tolist() == engine.tables.prefix[0, :5].tolist()
        engine.write(1, 7)
        assert engine.pool.claim(1) is None, "still computing"
        engine.read_all()
        request = engine.pool.claim(1)
        assert request is not None
        assert not request.done()
        assert engine.tables.control[8:, Field.SUCCESSOR].tolist() == [2, 0, 0, 0]
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert not engine.reading, "the successor's first step still reads the row"
        engine.pool.on_report(8)
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert engine.reading == [8]
        assert engine.tables.control[8, Field.SUCCESSOR] == 0

    run(scene())


def test_rows_are_divided_by_frequency_of_recent_prompts() -> None:
    async def scene() -> None:
        engine = Engine()
        await engine.begin(0, 7)
        engine.read_all()
        assert await engine.begin(1, 6) is None, "another prompt"
        await asyncio.sleep(0.01)
        assert len(engine.aborted) == 2, "half of the rows are for it now"
        for row in engine.aborted:
            engine.pool.on_report(row)
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert sorted(engine.reading) == sorted(engine.aborted)
        engine.read_all()
        assert [await engine.begin(slot, voice) is not None for slot, voice in ((2, 6), (3, 7))] == [True, True]

    run(scene())


def test_utterances_beyond_ready_rows_start_without_prefill() -> None:
    async def scene() -> None:
        engine = Engine()
        await engine.begin(0, 7)
        engine.read_all()
        taken = []
        for slot in range(1, 7):
            engine.write(slot, 7)
            taken.append(engine.pool.claim(slot))
        assert [each is not None for each in taken] == [True] * 4 + [False] * 2
        assert len({id(each) for each in taken[:4]}) == 4

    run(scene())


def test_prefix_that_depends_on_text_or_is_long_is_not_prefilled() -> None:
    engine = Engine()
    engine.write(0, 7, lead=1)
    assert PromptPrefix.of(engine.tables, 0) is None
    engine.write(0, 7, begin=MAX_PREFIX_POSITIONS + 1)
    assert PromptPrefix.of(engine.tables, 0) is None
    engine.write(0, 7, begin=MAX_PREFIX_POSITIONS, lead=-2)
    assert PromptPrefix.of(engine.tables, 0) is not None


@pytest.mark.parametrize("named", [True, False])
def test_prefixes_of_cloned_voices_differ_by_speaker_vector(named: bool) -> None:
    engine = Engine()
    for slot, value in ((0, 1.0), (1, 2.0)):
        engine.write(slot, 7)
        engine.tables.prefix[slot, 2, 1] = SPEAKER if named else 3
        engine.tables.speaker[slot] = value
    one, other = PromptPrefix.of(engine.tables, 0), PromptPrefix.of(engine.tables, 1)
    assert one is not None
    assert other is not None
    assert (one == other) is not named
    one.write(engine.tables, 9)
    assert engine.tables.speaker[9].tolist() == [1.0 if named else 0.0] * 3
    assert np.array_equal(engine.tables.prefix[9, :5], engine.tables.prefix[0, :5])


def test_closed_pool_computes_nothing() -> None:
    async def scene() -> None:
        engine = Engine()
        engine.write(0, 7)
        engine.pool.claim(0)
        engine.pool.close()
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert not engine.reading
        engine.pool.on_report(8)
        assert engine.pool.claim(0) is None

    run(scene())


def test_unclaimed_requests_are_aborted_on_close() -> None:
    async def scene() -> None:
        engine = Engine()
        await engine.begin(0, 7)
        engine.read_all()
        engine.write(1, 7)
        request = engine.pool.claim(1)
        assert request is not None
        engine.pool.close()
        await asyncio.sleep(0.01)
        assert engine.aborted == [9, 10, 11]
        assert not request.done(), "it is a generation's now"
        request.cancel()

    run(scene())


async def ready_engine(rows: int = SHAPE.prefilled_prompts) -> Engine:
    """An engine whose rows all have the prompt of voice 7."""
    engine = Engine(rows)
    await engine.begin(0, 7)
    engine.read_all()
    return engine


def test_half_of_the_rows_are_reserved_and_the_others_claimed() -> None:
    async def scene() -> None:
        assert Engine().pool.reserve() is None, "no prompt was in use"
        engine = await ready_engine()
        assert [engine.pool.reserve() for _ in range(3)] == [8, 9, None]
        claimed = []
        for slot in range(1, 4):
            engine.write(slot, 7)
            claimed.append(engine.pool.claim(slot))
        assert [request is not None for request in claimed] == [True, True, False]
        assert engine.tables.control[8:, Field.SUCCESSOR].tolist() == [0, 0, 2, 3]

    run(scene())


def test_other_process_claims_reserved_row_with_the_same_prompt_only() -> None:
    async def scene() -> None:
        engine = await ready_engine()
        row = engine.pool.reserve()
        assert row is not None
        engine.write(1, 6)
        assert not claim_reserved(engine.tables, 1, row)
        engine.write(1, 7, lead=1)
        assert not claim_reserved(engine.tables, 1, row), "it depends on the text"
        engine.write(1, 7)
        assert claim_reserved(engine.tables, 1, row)
        assert engine.tables.control[row, Field.SUCCESSOR] == 2
        request = engine.pool.take_over(row)
        assert request is not None
        assert engine.pool.take_over(row) is None, "it is claimed once"
        engine.pool.on_report(row)
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert engine.reading == [row], "it is free, and filled again"
        assert not request.done()

    run(scene())


def test_first_frame_may_be_made_before_the_claim_is_reported() -> None:
    async def scene() -> None:
        engine = await ready_engine()
        row = engine.pool.reserve()
        assert row is not None
        engine.write(1, 7)
        assert claim_reserved(engine.tables, 1, row)
        engine.pool.on_report(row)
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert not engine.reading, "its request is not taken over yet"
        request = engine.pool.take_over(row)
        assert request is not None
        assert not request.done()
        await asyncio.sleep(2 * REFILL_DELAY_S)
        assert engine.reading == [row]

    run(scene())


def test_unused_reservation_is_given_back() -> None:
    async def scene() -> None:
        engine = await ready_engine()
        first, second = engine.pool.reserve(), engine.pool.reserve()
        assert first is not None
        assert second is not None
        assert engine.pool.ready == 2
        assert engine.pool.give_back(first) is None
        assert engine.pool.ready == 3
        engine.write(1, 7)
        assert claim_reserved(engine.tables, 1, second)
        assert engine.pool.give_back(second) is not None, "it was claimed: the request has to be ended"
        engine.pool.close()
        assert engine.pool.give_back(first) is None
        assert engine.pool.reserve() is None

    run(scene())


def test_one_refill_replaces_the_rows_of_several_utterances() -> None:
    async def scene() -> None:
        engine = await ready_engine(8)
        for slot in range(3):
            engine.make_first_frame(slot, 7)
            await asyncio.sleep(0.3 * REFILL_DELAY_S)
        assert not engine.reading
        await asyncio.sleep(0.2 * REFILL_DELAY_S)
        assert engine.reading == [8, 9, 10]
        engine.make_first_frame(3, 7)
        await asyncio.sleep(0.9 * REFILL_DELAY_S)
        assert engine.reading == [8, 9, 10], "rows that are computed now are spare"
        await asyncio.sleep(0.2 * REFILL_DELAY_S)
        assert engine.reading == [8, 9, 10, 11]

    run(scene())


def test_refill_is_urgent_when_half_of_the_rows_are_used() -> None:
    async def scene() -> None:
        engine = await ready_engine(8)
        for slot in range(3):
            engine.make_first_frame(slot, 7)
        await asyncio.sleep(0.3 * REFILL_DELAY_S)
        engine.write(3, 7)
        assert engine.pool.claim(3) is not None
        await asyncio.sleep(0.9 * URGENT_REFILL_DELAY_S)
        assert not engine.reading
        engine.write(4, 7)
        assert engine.pool.claim(4) is not None, "which does not put it off"
        await asyncio.sleep(0.2 * URGENT_REFILL_DELAY_S)
        assert engine.reading == [8, 9, 10]

    run(scene())


def test_refill_is_urgent_for_a_prefix_without_rows() -> None:
    async def scene() -> None:
        engine = await ready_engine(8)
        engine.make_first_frame(0, 7)
        engine.write(1, 6)
        assert engine.pool.claim(1) is None
        await asyncio.sleep(0.9 * URGENT_REFILL_DELAY_S)
        assert not engine.reading
        await asyncio.sleep(0.2 * URGENT_REFILL_DELAY_S)
        assert engine.reading == [8]
        assert PromptPrefix.of(engine.tables, 8) == PromptPrefix.of(engine.tables, 1)
        engine.read_all()
        await engine.replace_aborted()
        assert engine.pool.ready == 8
        engine.make_first_frame(2, 6)
        await asyncio.sleep(2 * URGENT_REFILL_DELAY_S)
        assert not engine.reading, "it has others"

    run(scene())


def test_reserved_rows_are_spare_until_they_are_claimed() -> None:
    async def scene() -> None:
        engine = await ready_engine(8)
        assert [engine.pool.reserve() for _ in range(4)] == [8, 9, 10, 11]
        for slot in range(3):
            engine.make_first_frame(slot, 7)
        await asyncio.sleep(2 * URGENT_REFILL_DELAY_S)
        assert not engine.reading
        engine.write(3, 7)
        assert claim_reserved(engine.tables, 3, 8)
        assert engine.pool.take_over(8) is not None
        await asyncio.sleep(1.1 * URGENT_REFILL_DELAY_S)
        assert engine.reading == [12, 13, 14]

    run(scene())


def test_refill_becomes_urgent_when_the_last_row_of_the_newest_prefix_is_reserved() -> None:
    async def scene() -> None:
        engine = await ready_engine(8)
        engine.make_first_frame(0, 7)
        await engine.begin(1, 6)
        await engine.replace_aborted()
        engine.make_first_frame(2, 6)
        assert engine.pool.ready == 7
        while engine.pool.reserve() is not None:
            pass
        assert engine.pool.ready > 0, "rows of the other prefix"
        await asyncio.sleep(0.9 * URGENT_REFILL_DELAY_S)
        assert not engine.reading
        await asyncio.sleep(0.2 * URGENT_REFILL_DELAY_S)
        assert engine.reading

    run(scene())
