"""A running average of a model's weights: what is saved is the average, which errs less than the last update."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

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
