from __future__ import annotations

from ..card import Trial, row
from ..simulation import simulate

REPLAYS = 50
"""One seed in so many is played twice."""


@row(
    "S2",
    "simulation in virtual time: delay, reorder, stalls, cancels, half-closes, engine deaths",
    "10,000 seeds, 0 failures; a seed replays the same",
    light_s=15,
    nightly_s=300,
)
def simulation(trial: Trial) -> None:
    """`--seed` is the first seed played; a failure names its own."""
    seeds = range(trial.seed, trial.seed + trial.size(10_000, light=500))
    failures, unlike = 0, 0
    for seed in seeds:
        try:
            digest = simulate(seed)
        except Exception as failure:
            failures += 1
            trial.missed.append(f"seed {seed}: {type(failure).__name__} {failure}"[:300])
        else:
            unlike += seed % REPLAYS == 0 and simulate(seed) != digest
    trial.note("seeds", len(seeds))
    trial.equal("failures", failures, 0)
    trial.equal("replays that differ", unlike, 0)
