"""Schedules by elapsed time, and averages of weights.

A step is given seconds instead of a number of updates, so learning rates depend on the share of the time that passed.
The saved weights are running averages, which have lower losses than the last update's.
"""

from __future__ import annotations

import copy
import math
import time
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn


class TimeBudget:
    """The seconds given to a step, fewer if it would end after `until` (seconds since the epoch)."""

    def __init__(self, seconds: float, until: float = math.inf) -> None:
        self.seconds = max(1.0, min(seconds, until - time.time()))
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """Elapsed share: 0 at the start, 1 when the time is up, more after it."""
        return self.elapsed / self.seconds


def warm_up(update: int, updates: int) -> float:
    """Rises linearly to 1 over the first `updates` updates."""
    return min(1.0, (update + 1) / updates)


def cosine(share: float, floor: float) -> float:
    """Falls from 1 to `floor` along half a cosine."""
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def flat_then_linear(share: float, turn: float, floor: float) -> float:
    """1 up to `turn`, then falls linearly, to `floor` at least."""
    return 1.0 if share < turn else max(floor, (1 - share) / (1 - turn))


class Interval:
    """Returns True when called at least `seconds` after it last did."""

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
    """Exponential moving average of a model's weights; `model` is a copy with the averages."""

    def __init__(self, live: Model) -> None:
        self.model = copy.deepcopy(live).eval().requires_grad_(False)
        self._live = _weights(live)
        self._averages = _weights(self.model)

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """Move the averages towards the present weights."""
        torch._foreach_lerp_(self._averages, self._live, 1 - decay)


def _weights(model: nn.Module) -> list[Tensor]:
    return [value for value in model.state_dict().values() if value.is_floating_point()]


def growing_decay(update: int, longest: float, every: int = 1) -> float:
    """Decay that grows to `longest`. `every`: updates between two calls of `WeightAverage.update`."""
    return float(min(longest, (update + 1) / (update + 20)) ** every)
