from __future__ import annotations

from collections.abc import Callable

import pytest

from ..testbed.measuring import Figures, nightly
from .lost_replicas import simulate_lost_replicas


@pytest.mark.parametrize("seeds", [25, nightly(10_000)])
def test_lost_replicas_change_no_sample(seeds: int, seed: int, scaled: Callable[..., int], figures: Figures) -> None:
    """Gateways are killed and drained at any moment, connections cut, engines lost; see `lost_replicas.py`."""
    failures: list[str] = []
    moves, drains_s = 0, [0.0]
    for number in range(seed, seed + scaled(seeds)):
        try:
            moved, drained_s = simulate_lost_replicas(number)
        except Exception as failure:
            failures.append(f"seed {number}: {type(failure).__name__} {failure}")
        else:
            moves += moved
            drains_s += drained_s
    figures.note("seeds", scaled(seeds))
    figures.note("utterances that went on at another gateway", moves)
    figures.note("longest drain s", max(drains_s))
    assert failures == []
    assert moves, "no utterance moved"
