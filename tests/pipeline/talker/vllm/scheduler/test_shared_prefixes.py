"""`SharedPrefixScheduling` in vLLM's own scheduler: whose keys and values each page holds, over random requests."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from voxgate.pipeline.ipc.slot_tables import NO_ENTRY, SPEAKER, Field, SlotTables, TableShape
from voxgate.pipeline.talker.vllm.config import EngineConfig, EngineOptions

from .scheduler_loop import LONGEST, PAGE, SLOTS, Engine

pytestmark = pytest.mark.engine

SHAPE = TableShape(slots=SLOTS, prefix=40, text=24, frames=LONGEST - 41, groups=2, hidden=4)
STEPS = 400
VOICES = 5
COMMON = {voice: 7 + 5 * voice for voice in range(VOICES)}
"""Positions before the text, of each voice: 1 to 6 whole pages."""


class Cache:
    """An engine, its slots' tables, and of which request each position of its pages is."""

    def __init__(self, config: Any, tables: SlotTables, path: str, pages: int) -> None:
        from voxgate.pipeline.talker.vllm.scheduler.frame_rows import FrameRowScheduling
        from voxgate.pipeline.talker.vllm.scheduler.shared_prefixes import SharedPrefixScheduling

        options = EngineConfig("nowhere", EngineOptions(), SHAPE, path, (), "", os.getpid())
        config.additional_config = options.as_additional_config()
        self.engine = Engine(config, pages, SharedPrefixScheduling, FrameRowScheduling)
        self.scheduler = self.engine.scheduler
        self._tables = tables
        self._content: dict[tuple[int, int], object] = {}
        self.taken_over = 0
        """Positions that requests did not compute."""

    def add(self, name: str, slot: int, voice: int, tokens: int = 30, prompt: int = 36) -> None:
        """Requests an utterance in a voice, whose prompt has so many positions; one voice has a vector."""
        control, prefix = self._tables.control[slot], self._tables.prefix[slot]
        control[Field.PREFIX_LEN], control[Field.TEXT_LEAD] = prompt - 1, prompt - 1 - COMMON[voice]
        prefix[:, 0] = NO_ENTRY
        prefix[: COMMON[voice], 0] = range(COMMON[voice])
        prefix[:, 1:] = voice if voice else SPEAKER
        self._tables.speaker[slot] = voice
        self.engine.add(name, slot, prompt, tokens)

    def step(self) -> None:
        """Runs a step and checks that each request reads what it would have computed itself."""
        scheduler, computed = self.scheduler, {}
        schedule = scheduler.schedule

        def noted() -> Any:
            order = schedule()
            cached = order.scheduled_cached_reqs
            computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            computed.update((new.req_id, new.num_computed_tokens) for new in order.scheduled_new_reqs)
            self.taken_over += sum(new.num_computed_tokens for new in order.scheduled_new_reqs)
            for name, count in order.num_scheduled_tokens.items():
                self._compute(name, computed[name], count)
            return order

        scheduler.schedule = noted
        self.engine.step(())
        scheduler.schedule = schedule

    def _compute(self, name: str, begin: int, count: int) -> None:
        slot = int(name.split("-")[1])
        pages = self.scheduler.kv_cache_manager.get_block_ids(name)[0]
        for position in range(begin + count):
            at = pages[position // PAGE], position % PAGE
            prefix = self._tables.prefix[slot, position].tobytes() if position < SHAPE.prefix else b""
            common = (
                position < self._tables.control[slot, Field.PREFIX_LEN] - self._tables.control[slot, Field.TEXT_LEAD]
            )
            wanted = (prefix, self._tables.speaker[slot].tobytes(), position) if common else (name, position)
            if position >= begin:
                self._content[at] = wanted
            assert self._content[at] == wanted, f"{name} reads another request's position {position}"

    def run_empty(self) -> None:
        for _ in range(3000):
            if not self.scheduler.requests:
                return
            self.step()
        raise AssertionError(f"requests that never end: {sorted(self.scheduler.requests)}")


@pytest.fixture
def tables() -> tuple[SlotTables, str]:
    return SlotTables.create(SHAPE)


def test_later_requests_take_whole_pages_over(vllm_config: Any, tables: tuple[SlotTables, str]) -> None:
    cache = Cache(vllm_config, *tables, pages=500)
    cache.add("a-0", 0, voice=1)
    cache.step()
    assert cache.taken_over == 0
    cache.add("b-1", 1, voice=1)
    cache.add("c-2", 2, voice=2)
    cache.step()
    assert cache.taken_over == COMMON[1] // PAGE * PAGE
    cache.run_empty()
    # Also when the request that computed them has ended.
    cache.add("d-1", 1, voice=1)
    cache.step()
    assert cache.taken_over == 2 * (COMMON[1] // PAGE * PAGE)
    cache.run_empty()


def test_requests_of_one_step_share_nothing(vllm_config: Any, tables: tuple[SlotTables, str]) -> None:
    """Attention may read cached keys before the step has written any."""
    cache = Cache(vllm_config, *tables, pages=500)
    cache.add("a-0", 0, voice=1)
    cache.add("b-1", 1, voice=1)
    cache.step()
    assert cache.taken_over == 0


def test_a_prompt_computed_in_parts_is_not_shared_before_its_pages_are(
    vllm_config: Any, tables: tuple[SlotTables, str]
) -> None:
    cache = Cache(vllm_config, *tables, pages=500)
    cache.add("a-0", 0, voice=1)
    # A step has 48 positions: twelve are left for this one.
    cache.add("b-1", 1, voice=4)
    cache.step()
    cache.add("c-2", 2, voice=4)
    cache.step()
    assert cache.taken_over == 0


def test_a_position_is_left_to_compute(vllm_config: Any, tables: tuple[SlotTables, str]) -> None:
    """A prompt that ends before the text, as one computed ahead does."""
    cache = Cache(vllm_config, *tables, pages=500)
    for slot in range(2):
        cache.add(f"a-{slot}", slot, voice=1, prompt=COMMON[1])
        tables[0].control[slot, [Field.PREFIX_LEN, Field.TEXT_LEAD]] = COMMON[1], 0
        cache.step()
    assert cache.taken_over == COMMON[1] - PAGE
    cache.run_empty()


def test_a_vector_is_part_of_the_beginning(vllm_config: Any, tables: tuple[SlotTables, str]) -> None:
    cache = Cache(vllm_config, *tables, pages=500)
    cache.add("a-0", 0, voice=0)
    cache.step()
    cache.add("b-1", 1, voice=0)
    tables[0].speaker[1] = 3
    cache.add("c-2", 2, voice=0)
    cache.step()
    assert cache.taken_over == COMMON[0] // PAGE * PAGE, "the one with the same vector"


def test_pages_are_given_up_when_a_request_needs_them(vllm_config: Any, tables: tuple[SlotTables, str]) -> None:
    """The smallest cache: room for one of the longest requests, and a page of vLLM's own."""
    cache = Cache(vllm_config, *tables, pages=LONGEST // PAGE + 1)
    for number in range(6):
        cache.add(f"{number}-0", 0, voice=number % VOICES, tokens=LONGEST - 36)
        cache.run_empty()
    assert cache.engine.preempted == 0


@pytest.mark.parametrize(("seed", "pages"), [(1, 1000), (2, 200), (3, 90)])
def test_every_request_reads_its_own_keys(
    vllm_config: Any, tables: tuple[SlotTables, str], seed: int, pages: int
) -> None:
    """Random utterances in five voices, with aborts; with few pages, preempted requests."""
    chance, cache = random.Random(seed), Cache(vllm_config, *tables, pages=pages)
    free = cache.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    for number in range(STEPS):
        taken = {int(name.split("-")[1]) for name in cache.scheduler.requests}
        open_slots = sorted(set(range(SLOTS)) - taken)
        if open_slots and chance.random() < 0.5:
            slot, voice = chance.choice(open_slots), chance.randrange(VOICES)
            cache.add(f"{number}-{slot}", slot, voice, chance.randint(1, 50), chance.randint(COMMON[voice] + 1, 40))
        if cache.scheduler.requests and chance.random() < 0.05:
            cache.engine.abort(chance.choice(sorted(cache.scheduler.requests)))
        cache.step()
    assert bool(cache.engine.preempted) == (pages < 200)
    assert cache.taken_over > 20 * PAGE
    cache.run_empty()
    # Nothing is lost: when the shared pages are given up, all are free.
    held = sum(map(len, cache.scheduler._shared.values()))
    assert cache.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() + held == free
