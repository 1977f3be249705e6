"""How much of a GPU's memory is asked for, and what requests are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from voxgate.pipeline.talker.vllm_process import Memory, Requests, plan_memory

GB = 1 << 30


def test_a_cache_that_fits_is_all_that_is_taken() -> None:
    memory = plan_memory(total=140 * GB, most=0.7, weights=4 * GB, cache=20 * GB)
    assert memory.cache_bytes == 20 * GB
    assert memory.share == pytest.approx(28 / 140)


def test_where_it_does_not_fit_the_rest_of_the_share_is_taken() -> None:
    assert plan_memory(total=24 * GB, most=0.7, weights=4 * GB, cache=20 * GB) == Memory(None, 0.7)
    assert plan_memory(total=34 * GB, most=0.9, weights=4 * GB, cache=20 * GB, copies=3 * GB) == Memory(None, 0.9)


def test_copies_of_weights_are_counted() -> None:
    assert plan_memory(total=140 * GB, most=0.7, weights=4 * GB, cache=20 * GB, copies=4 * GB).share == 32 / 140


@dataclass
class Template:
    request_id: str = ""
    prompt_token_ids: list[int] = field(default_factory=list)
    arrival_time: float = 0.0
    sampling_params: str = "the engine's"


def test_requests_differ_in_what_is_their_own_and_share_the_rest() -> None:
    requests = Requests(template := Template())  # type: ignore[arg-type]  # vLLM's
    one, other = requests.make("17", 3, 4), requests.make("18", 5, 2)
    assert (one.request_id, one.prompt_token_ids) == ("17", [3, 3, 3, 3])
    assert (other.request_id, other.prompt_token_ids) == ("18", [5, 5])
    assert one.sampling_params == other.sampling_params == template.sampling_params
    assert one.arrival_time > 0
    assert template == Template()
