"""Who speaks when: the turns of one step of a load, drawn from a seed, and their split over processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from .results import ClientBehaviour
from .targets.connection import TargetOptions
from .virtual_user import PlannedUtterance, passage

CUT_S = (0.5, 3.0)
"""Interrupts and drops come between so many seconds after the first audio."""


@dataclass(frozen=True, slots=True)
class BehaviourShares:
    """Which part of the listeners misbehaves, each 0 to 1; the rest listens to the end."""

    barge_in: float = 0.0
    slow: float = 0.0
    abrupt: float = 0.0

    def draw(self, choice: random.Random) -> ClientBehaviour:
        at = choice.random()
        for behaviour, share in (
            (ClientBehaviour.BARGE_IN, self.barge_in),
            (ClientBehaviour.SLOW, self.slow),
            (ClientBehaviour.ABRUPT, self.abrupt),
        ):
            if at < share:
                return behaviour
            at -= share
        return ClientBehaviour.PLAIN


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One step. Either `streams` listeners that speak turn after turn, or turns that arrive at `rate_per_s`.

    Arrivals are a Poisson process either way: `rate_per_s` is open loop, nobody waits for anybody; streams begin at
    their own moments of the first `spread_s` seconds and stay until `seconds` are over.
    """

    target: str
    options: TargetOptions
    seconds: float
    streams: int = 0
    rate_per_s: float = 0.0
    sentences: int = 3
    words_per_s: float = 25.0
    shares: BehaviourShares = field(default_factory=BehaviourShares)
    seed: int = 1
    spread_s: float = 2.0
    part: int = 0
    parts: int = 1
    """This process takes every `parts`-th listener, beginning with `part`."""

    def arrivals_s(self) -> list[tuple[int, float]]:
        """The listeners of this process: (number, seconds after the beginning)."""
        choice = random.Random(self.seed)
        times = list(_poisson(choice, self.rate_per_s, self.seconds)) if self.rate_per_s else self._starts(choice)
        return [(number, at_s) for number, at_s in enumerate(times) if number % self.parts == self.part]

    def _starts(self, choice: random.Random) -> list[float]:
        return sorted(choice.uniform(0, self.spread_s) for _ in range(self.streams))

    def turn(self, stream: int, index: int, intended_s: float) -> PlannedUtterance:
        """PlannedUtterance `index` of a listener; the same for the same seed, however the listeners are split."""
        choice = random.Random(f"{self.seed}-{stream}-{index}")
        return PlannedUtterance(
            stream=stream,
            text=passage(self.sentences, choice),
            intended_s=intended_s,
            words_per_s=self.words_per_s,
            behaviour=self.shares.draw(choice),
            cut_s=choice.uniform(*CUT_S),
        )


def _poisson(choice: random.Random, rate_per_s: float, seconds: float) -> Iterator[float]:
    at_s = choice.expovariate(rate_per_s)
    while at_s < seconds:
        yield at_s
        at_s += choice.expovariate(rate_per_s)
