from __future__ import annotations

from collections.abc import Callable

import pytest

from ..testbed.measuring import Figures, nightly
from .session_walk import EDGES, walk

STEPS_PER_WALK = 100_000


@pytest.mark.parametrize("steps", [400_000, nightly(2_000_000)])
def test_random_events_keep_session_invariants(
    steps: int, seed: int, scaled: Callable[..., int], figures: Figures
) -> None:
    """Legal and illegal events in random order; together they take every edge of the utterance's state table."""
    edges, steps = set(), scaled(steps, least=STEPS_PER_WALK)
    for start in range(0, steps, STEPS_PER_WALK):
        edges |= walk(min(STEPS_PER_WALK, steps - start), seed + start)
    figures.note("steps", steps)
    assert EDGES - edges == set()
