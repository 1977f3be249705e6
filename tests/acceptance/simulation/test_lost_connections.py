from __future__ import annotations

from collections.abc import Callable

import pytest

from ..testbed.measuring import Figures, nightly
from .lost_connections import simulate_losses


@pytest.mark.parametrize("seeds", [25, nightly(10_000)])
def test_lost_connections_change_no_sample(seeds: int, seed: int, scaled: Callable[..., int], figures: Figures) -> None:
    """Losses at any moment, several in a row, noticed at once, later or never; see `lost_connections.py`."""
    failures, losses = [], 0
    for number in range(seed, seed + scaled(seeds)):
        try:
            losses += simulate_losses(number)
        except Exception as failure:
            failures.append(f"seed {number}: {type(failure).__name__} {failure}")
    figures.note("seeds", scaled(seeds))
    figures.note("losses noticed by utterances", losses)
    assert failures == []
    assert losses, "no connection was lost"
