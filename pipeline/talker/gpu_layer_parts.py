"""What the kernels of the talker's layers are given: weights, and whose rows are in the batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """Matrices are [out, in]; `qkv` and `gate_up` carry the norm that precedes them. `q_norm`, `k_norm`: [head_dim]."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    q_norm: Tensor
    k_norm: Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """Whose the rows of a batch are, and where.

    `slots`: int [n]; `positions`, `places`: int64 [n], `places` where their key and value go, below zero for nobody's;
    `pages`: int32 [requests, pages], where a request's positions lie in the cache; `starts`: int32 [requests + 1],
    where its rows begin.
    """

    slots: Tensor
    positions: Tensor
    places: Tensor
    pages: Tensor
    starts: Tensor
