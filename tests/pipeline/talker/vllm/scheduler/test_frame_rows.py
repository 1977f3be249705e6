"""`FrameRowScheduling` beside vLLM's own scheduler, over random requests: the same steps, the same state after each."""

from __future__ import annotations

import random
from typing import Any

import pytest

from .scheduler_loop import SLOTS, Engine

STEPS = 400

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(("seed", "pages"), [(1, 1000), (2, 1000), (3, 160), (4, 90)])
def test_steps_and_state_equal_those_of_vllm(vllm_config: Any, seed: int, pages: int) -> None:
    """Prompts of several steps, holds, aborts, ends, the longest requests; with few pages, preempted requests."""
    chance = random.Random(seed)
    from voxgate.pipeline.talker.vllm.scheduler.frame_rows import FrameRowScheduling

    own, plain = Engine(vllm_config, pages, FrameRowScheduling), Engine(vllm_config, pages)
    for number in range(STEPS):
        if len(own.scheduler.requests) < SLOTS and chance.random() < 0.5:
            arguments = (f"{number}-{number % SLOTS}", number % SLOTS, chance.randint(1, 60), chance.randint(1, 80))
            for engine in (own, plain):
                engine.add(*arguments)
        if own.scheduler.requests and chance.random() < 0.05:
            name = chance.choice(sorted(own.scheduler.requests))
            for engine in (own, plain):
                engine.abort(name)
        held = [name for name in sorted(own.scheduler.requests) if chance.random() < 0.2]
        assert own.step(held) == plain.step(held)
        assert own.state() == plain.state()
    assert bool(own.preempted) == (pages < 1000)
    if pages == 1000:
        assert own.vllm_rows < plain.vllm_rows / 3, "vLLM must see few rows of frames"
