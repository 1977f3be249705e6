"""The plan of one step: which utterances begin when, drawn from a seed, and how they are divided among processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from .results import ClientBehaviour
from .targets.connection import TargetOptions
from .virtual_user import PlannedUtterance, random_text

CUT_S = (0.5, 3.0)
"""Range of the time from the first audio to an interrupt or a cut connection."""
MAX_UTTERANCES = 10_000


@dataclass(frozen=True, slots=True)
class BehaviourShares:
    """The shares of utterances with each behaviour, 0 to 1; the rest is played to the end."""

    barge_in: float = 0.0
    slow: float = 0.0
    abrupt: float = 0.0

    def draw(self, choice: random.Random) -> ClientBehaviour:
        value = choice.random()
        for behaviour, share in (
            (ClientBehaviour.BARGE_IN, self.barge_in),
            (ClientBehaviour.SLOW, self.slow),
            (ClientBehaviour.ABRUPT, self.abrupt),
        ):
            if value < share:
                return behaviour
            value -= share
        return ClientBehaviour.PLAIN


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One step of a load test, of one of two kinds.

    With `streams`, so many virtual users speak one utterance after another: they begin at random times in the first
    `spread_s` seconds, and begin no utterance after `seconds`. With `rate_per_s`, utterances begin as a Poisson process
    for `seconds`, whatever becomes of earlier ones (an open loop).
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
    utterances_per_stream: int = MAX_UTTERANCES
    part: int = 0
    parts: int = 1
    """A process runs every `parts`-th stream or arrival, starting with number `part`."""

    def arrivals_s(self) -> list[tuple[int, float]]:
        """The streams or arrivals of this process: (number, seconds after the beginning)."""
        choice = random.Random(self.seed)
        times = list(_poisson(choice, self.rate_per_s, self.seconds)) if self.rate_per_s else self._starts(choice)
        return [(number, start_s) for number, start_s in enumerate(times) if number % self.parts == self.part]

    def _starts(self, choice: random.Random) -> list[float]:
        return sorted(choice.uniform(0, self.spread_s) for _ in range(self.streams))

    def utterance(self, stream: int, index: int, intended_s: float) -> PlannedUtterance:
        """Utterance `index` of a stream. It depends on the seed, not on how the streams are divided."""
        choice = random.Random(f"{self.seed}-{stream}-{index}")
        return PlannedUtterance(
            stream=stream,
            text=random_text(self.sentences, choice),
            intended_s=intended_s,
            words_per_s=self.words_per_s,
            behaviour=self.shares.draw(choice),
            cut_s=choice.uniform(*CUT_S),
        )


def _poisson(choice: random.Random, rate_per_s: float, seconds: float) -> Iterator[float]:
    time_s = choice.expovariate(rate_per_s)
    while time_s < seconds:
        yield time_s
        time_s += choice.expovariate(rate_per_s)
