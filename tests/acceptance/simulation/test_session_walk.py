from __future__ import annotations

from ..scorecard.card import Trial, row
from .session_walk import EDGES, walk

STEPS_A_WALK = 100_000


@row(
    "S1",
    "session machine, random legal and illegal events",
    "10^6 steps, 0 invariant breaks, every table edge hit",
    light_s=3,
    nightly_s=15,
)
def session_walk(trial: Trial) -> None:
    steps = trial.size(1_000_000, light=200_000)
    hit, broken, taken = set(), 0, 0
    while taken < steps:
        part = min(STEPS_A_WALK, steps - taken)
        try:
            hit |= walk(part, trial.seed + taken)
        except AssertionError as invariant:
            broken += 1
            trial.missed.append(f"walk({part}, {trial.seed + taken}): {invariant}")
        taken += part
    trial.note("steps", taken)
    trial.equal("invariant breaks", broken, 0)
    trial.equal("edges missed", len(EDGES - hit), 0)
