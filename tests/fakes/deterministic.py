"""Random weights and noise that are the same on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def stable_weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """float32 weights of plausible scale, determined by name and shape."""
    # RandomState is frozen; the numbers of a Generator may change with the version of NumPy.
    return {name: torch.from_numpy(_weight(name, shape)) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if name.endswith(("layernorm.weight", "norm.weight", "cluster_usage")):
        values = 1 + 0.2 * values.clip(-2, 2)
    elif name.endswith(".scale"):
        values = 0.5 + 0.1 * values
    elif name.endswith(".bias"):
        values = 0.1 * values
    elif name.endswith(".initialized"):
        values = np.ones(shape)
    elif "embed_sum" not in name:
        values = 1.2 * values / max(1, values[0].size) ** 0.5
    return np.asarray(values, np.float32)


def noise(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """float32 [samples] in [-1, 1], noise whose loudness varies."""
    random = np.random.RandomState(seed)
    loudness = np.repeat(random.uniform(0.02, 0.3, -(-samples // 1000)), 1000)[:samples]
    return np.asarray((random.standard_normal(samples) * loudness).clip(-1, 1), np.float32)
