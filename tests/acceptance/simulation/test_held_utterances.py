from __future__ import annotations

from collections.abc import Callable

import pytest

from ..testbed.measuring import Figures, nightly
from .held_utterances import simulate_holds


@pytest.mark.parametrize("seeds", [30, nightly(10_000)])
def test_holds_change_no_sample(seeds: int, seed: int, scaled: Callable[..., int], figures: Figures) -> None:
    """Holds at any moment, with the client's position or the clock's, amid losses and contention."""
    failures, holds, repeated = [], 0, 0
    for number in range(seed, seed + scaled(seeds)):
        try:
            held, again = simulate_holds(number)
        except Exception as failure:
            failures.append(f"seed {number}: {type(failure).__name__} {failure}"[:300])
        else:
            holds += held
            repeated += again
    figures.note("seeds", scaled(seeds))
    figures.note("holds", holds)
    figures.note("packets sent again", repeated)
    assert failures == []
    assert holds, "nothing was held"
    assert repeated, "nothing was sent again"
