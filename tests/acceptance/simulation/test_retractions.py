from __future__ import annotations

from collections.abc import Callable

import pytest

from ..testbed.measuring import Figures, nightly
from .retractions import simulate_retractions
from .retractions_elsewhere import simulate_retractions_elsewhere


@pytest.mark.parametrize("seeds", [40, nightly(5000)])
def test_speech_goes_on_behind_what_was_sent(
    seeds: int, seed: int, scaled: Callable[..., int], figures: Figures
) -> None:
    """Text is taken back at any moment; see `retractions.py`."""
    failures: list[str] = []
    retractions = cuts = 0
    for number in range(seed, seed + scaled(seeds)):
        try:
            heard = simulate_retractions(number)
        except Exception as failure:
            failures.append(f"seed {number}: {type(failure).__name__} {failure}")
        else:
            retractions += heard.retractions
            cuts += heard.cuts
    figures.note("seeds", scaled(seeds))
    figures.note("retractions", retractions)
    figures.note("of these, cuts of speech", cuts)
    assert failures == []
    assert cuts, "no speech was cut"


@pytest.mark.parametrize("seeds", [16, nightly(3000)])
def test_it_does_so_at_another_gateway(seeds: int, seed: int, scaled: Callable[..., int], figures: Figures) -> None:
    """Gateways are killed and drained, connections cut, engines lost meanwhile; see `retractions_elsewhere.py`."""
    failures: list[str] = []
    retractions = moves = 0
    for number in range(seed, seed + scaled(seeds)):
        try:
            retracted, moved = simulate_retractions_elsewhere(number)
        except Exception as failure:
            failures.append(f"seed {number}: {type(failure).__name__} {failure}")
        else:
            retractions += retracted
            moves += moved
    figures.note("seeds", scaled(seeds))
    figures.note("retractions", retractions)
    figures.note("utterances that went on at another gateway", moves)
    assert failures == []
    assert retractions, "no text was taken back"
    assert moves, "no utterance moved"
