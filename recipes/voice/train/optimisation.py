"""Learning rates by the share of the time that has passed: each step is given its seconds, not a number of updates."""
# TODO-DOC A running average of a model's weights: what is saved is the average, which errs less than the last update.

from __future__ import annotations

import copy
import math
import time
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn


class TimeBudget:
    """Seconds given to a step, and how much of them is gone."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """0 at the start, 1 when the time is up; more after it."""
        return self.elapsed / self.seconds


def warm_up(update: int, updates: int) -> float:
    return min(1.0, (update + 1) / updates)


def cosine(share: float, floor: float) -> float:
    """From 1 to `floor`."""
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def flat_then_linear(share: float, turn: float, floor: float) -> float:
    """1 as far as `turn`, from there straight down; `floor` at least."""
    return 1.0 if share < turn else max(floor, (1 - share) / (1 - turn))


class Interval:
    """Says yes when that many seconds have passed since it last did."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


Model = TypeVar("Model", bound=nn.Module)


class WeightAverage(Generic[Model]):
    """`model` is a copy with the averaged weights, ready to be used and saved."""

    def __init__(self, live: Model) -> None:
        self.model = copy.deepcopy(live).eval().requires_grad_(False)
        self._live = _weights(live)
        self._averages = _weights(self.model)

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        torch._foreach_lerp_(self._averages, self._live, 1 - decay)


def _weights(model: nn.Module) -> list[Tensor]:
    return [value for value in model.state_dict().values() if value.is_floating_point()]


def growing_decay(update: int, longest: float, every: int = 1) -> float:
    """Short memory at first; `longest` later. `every`: updates between two calls."""
    return float(min(longest, (update + 1) / (update + 20)) ** every)
