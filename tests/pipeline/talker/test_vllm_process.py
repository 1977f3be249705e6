"""How much of a GPU's memory is asked for."""

from __future__ import annotations

import pytest
from voxgate.pipeline.talker.vllm_process import Memory, plan_memory

GB = 1 << 30


def test_a_cache_that_fits_is_all_that_is_taken() -> None:
    memory = plan_memory(total=140 * GB, most=0.7, weights=4 * GB, cache=20 * GB)
    assert memory.cache_bytes == 20 * GB
    assert memory.share == pytest.approx(28 / 140)


def test_where_it_does_not_fit_the_rest_of_the_share_is_taken() -> None:
    assert plan_memory(total=24 * GB, most=0.7, weights=4 * GB, cache=20 * GB) == Memory(None, 0.7)
