from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from ..testbed.expected_audio import percentile
from ..testbed.measuring import Figures, nightly
from .fuzz import FuzzTarget, fuzz_targets, mutated

MAX_US = 200
"""Time for one message, p99."""


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("messages", [2000, nightly(200_000)])
@pytest.mark.parametrize("target", fuzz_targets(), ids=lambda target: target.name)
def test_fuzzed_messages_bring_documented_errors(
    target: FuzzTarget, messages: int, seed: int, scaled: Callable[..., int], figures: Figures
) -> None:
    chance = random.Random(seed)
    session, now_s = target.open(), 0.0
    took_us: list[float] = []
    for _ in range(scaled(messages)):
        payload = mutated(chance, target.examples)
        now_s += chance.choice([0.0, 0.01, 5.0])
        began_ns = time.perf_counter_ns()
        session.take(payload, now_s)
        took_us.append((time.perf_counter_ns() - began_ns) / 1000)
        assert session.settle(now_s) is None, payload[:100]
    figures.note("messages", len(took_us))
    figures.time_at_most("µs per message, p99", percentile(took_us, 99), MAX_US)
