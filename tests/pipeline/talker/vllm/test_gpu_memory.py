"""The division of a GPU's memory, for the published sizes on the cards that people have."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.talker.vllm.gpu_memory import (
    BUFFER_BYTES,
    GB,
    GRAPH_BYTES,
    MAX_SLOTS,
    GpuMemoryPlan,
    MemoryNeeds,
    plan_gpu_memory,
)

SHARE = 0.9
POSITION_BYTES = 28 * 2 * 8 * 128 * 2
"""Of both published sizes: layers, keys and values, heads, channels, bytes."""
SMALL = MemoryNeeds(int(2.8 * GB), POSITION_BYTES, 2400)
"""0.6B: weights with the codec's, and the projected text embedding."""
LARGE = MemoryNeeds(int(5.2 * GB), POSITION_BYTES, 2400)
"""1.7B."""


def plan(card_gb: float, needs: MemoryNeeds, slots: int | None = None, cache: int | None = None) -> GpuMemoryPlan:
    """On a card of which the driver and a display take half a gigabyte."""
    return plan_gpu_memory(int((card_gb - 0.5) * GB), SHARE, needs, slots, cache)


@pytest.mark.parametrize(("card_gb", "least_slots"), [(8, 16), (12, 64), (16, 64), (24, 144)])
def test_small_model_has_slots_on_small_cards(card_gb: float, least_slots: int) -> None:
    assert plan(card_gb, SMALL).slots >= least_slots


@pytest.mark.parametrize(("card_gb", "least_slots"), [(12, 48), (16, 64), (24, 128), (48, 400), (80, 800)])
def test_large_model_has_slots_on_cards_from_12_gb_on(card_gb: float, least_slots: int) -> None:
    assert plan(card_gb, LARGE).slots >= least_slots


@pytest.mark.parametrize("card_gb", [12, 16, 24, 48])
def test_slots_are_a_multiple_of_sixteen(card_gb: float) -> None:
    assert plan(card_gb, LARGE).slots % 16 == 0


def test_cache_in_float8_has_room_for_more_slots(checkpoint: TalkerCheckpoint) -> None:
    half = MemoryNeeds.of(checkpoint, 500, item_bytes=2)
    small = MemoryNeeds.of(checkpoint, 500, item_bytes=2, cache_item_bytes=1)
    assert (small.model, 2 * small.position) == (half.model, half.position)
    assert plan(24, replace(LARGE, position=POSITION_BYTES // 2)).slots > 1.5 * plan(24, LARGE).slots


def test_slots_have_a_maximum() -> None:
    assert plan(141, SMALL).slots == MAX_SLOTS


@pytest.mark.parametrize("needs", [SMALL, LARGE])
@pytest.mark.parametrize("card_gb", [8, 12, 16, 24, 48, 80, 141])
def test_plan_never_exceeds_share_of_free_memory(card_gb: float, needs: MemoryNeeds) -> None:
    if card_gb == 8 and needs is LARGE:
        return
    made = plan(card_gb, needs)
    before_cache = needs.model + needs.buffers(made.slots) - GRAPH_BYTES + made.slots * needs.slot_bytes
    free = int((card_gb - 0.5) * GB)
    cache = made.cache_from(free - before_cache)
    assert cache >= needs.least_cache
    assert before_cache + GRAPH_BYTES + cache <= SHARE * free


def test_model_that_does_not_fit_is_refused_with_missing_gigabytes() -> None:
    with pytest.raises(EngineError, match=r"is 0\.\d GB short: the model needs 7\.\d GB .* 6\.8 GB may be used"):
        plan(8, LARGE)


def test_slots_that_do_not_fit_are_refused() -> None:
    with pytest.raises(EngineError, match="the model with 1000 slots needs"):
        plan(8, SMALL, slots=1000)


def test_requested_cache_is_taken_exactly_when_it_fits() -> None:
    made = plan(80, LARGE, slots=8, cache=GB)
    assert made.cache_from(60 * GB) == GB


def test_cache_is_smaller_when_less_is_free_than_planned() -> None:
    made = plan(24, LARGE, slots=256)
    assert made.cache_from(12 * GB) == 12 * GB - made.kept_free - GRAPH_BYTES


def test_missing_memory_after_loading_is_told() -> None:
    made = plan(24, LARGE, slots=8)
    with pytest.raises(EngineError, match=r"GPU memory is .* short: with 8 slots loaded"):
        made.cache_from(GRAPH_BYTES)


def test_description_has_every_part() -> None:
    made = plan(24, LARGE, slots=100)
    line = made.describe(100 * 512 * POSITION_BYTES, LARGE.model + 540 * 10**6 + BUFFER_BYTES)
    assert line.startswith(
        "GPU memory: weights 5.2 GB, codec streams 0.5 GB, buffers 7.0 GB, cache 5.9 GB: 100 slots of 41 s"
    )


def test_plan_survives_transport() -> None:
    made = plan(24, LARGE)
    assert GpuMemoryPlan.of(json.loads(json.dumps(asdict(made)))) == made


@pytest.mark.parametrize(
    ("needs", "slots", "taken_gb"),
    [
        (SMALL, 16, 4.1),
        (LARGE, 16, 6.4),
        (SMALL, 32, 4.2),
        (LARGE, 48, 6.7),
        (SMALL, 96, 9.9),
        (LARGE, 1040, 19.0),
        (LARGE, 1600, 21.9),
    ],
    ids=lambda value: "" if isinstance(value, MemoryNeeds) else str(value),
)
def test_needs_cover_what_was_measured_without_the_cache(needs: MemoryNeeds, slots: int, taken_gb: float) -> None:
    """On an H100 and an H200: what the log of a start counted, and 0.7 GB outside of torch's allocator."""
    assert needs.least(slots) - needs.least_cache >= taken_gb * GB
