"""Sizes, weights and buffers of the compiled code predictor, in the order in which it reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from voxgate.codecs.neural.cpu.panels import PANEL, panel_array

from ..reference.predictor_weights import FoldedPredictor

Array = NDArray[np.float32]


class PredictorSizes(NamedTuple):
    """Sizes of the predictor; `codebook`: number of ids a code is drawn from."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    codebook: int
    norm_eps: float


class PanelWeights(NamedTuple):
    """Folded weights, float32. A matrix [k, n] is stored as panels, [n / PANEL rounded up, k, PANEL], padded with
    zeros.

    `projection` has no panels where talker and predictor are equally wide. `rope_cos`, `rope_sin`: [layers, groups,
    heads + kv_heads, head_dim]; `inputs`: [groups - 1, codebook, hidden].
    """

    projection: Array
    bias: Array
    inputs: Array
    qkv: Array
    out: Array
    gate_up: Array
    down: Array
    rope_cos: Array
    rope_sin: Array
    heads: Array


class FrameBuffers(NamedTuple):
    """Intermediate results of a frame, [rows, ...]; `keys` and `values`: [layers, rows, kv_heads, groups, head_dim]."""

    residual: Array
    x: Array
    qkv: Array
    attended: Array
    update: Array
    gate_up: Array
    logits: Array
    scores: Array
    keys: Array
    values: Array
    order: NDArray[np.int64]
    mass: NDArray[np.float64]


class RowSampling(NamedTuple):
    """Sampling options of each row, [n]; see `Candidates`."""

    inverse_temperature: Array
    top_k: NDArray[np.int64]
    top_p: Array


def array(tensor: Tensor) -> Any:
    """The tensor's memory where it is contiguous, else a copy: compiled code accepts no other layout."""
    return tensor.contiguous().numpy()


def pack(folded: FoldedPredictor, codebook: int) -> PanelWeights:
    """All weights in the layout of `PanelWeights`; of the first embedding table only the rows of codes."""
    hidden = folded.inputs[0].shape[1]
    projection, bias = folded.projection, folded.bias
    if projection is None or bias is None:
        projection, bias = torch.zeros(0, hidden), torch.zeros(0)
    layers = folded.layers
    return PanelWeights(
        projection=_panels([projection.t()])[0],
        bias=array(bias.float()),
        inputs=array(torch.stack([table[:codebook].float() for table in folded.inputs])),
        qkv=_panels([layer.qkv for layer in layers]),
        out=_panels([layer.out for layer in layers]),
        gate_up=_panels([layer.gate_up for layer in layers]),
        down=_panels([layer.down for layer in layers]),
        rope_cos=array(torch.stack([layer.rope_cos.float() for layer in layers])),
        rope_sin=array(torch.stack([layer.rope_sin.float() for layer in layers])),
        heads=_panels(folded.heads),
    )


def _panels(matrices: Sequence[Tensor]) -> Array:
    """Matrices [k, n] as panels, [layers, n / PANEL rounded up, k, PANEL]."""
    return panel_array(torch.stack([matrix.float() for matrix in matrices]))


def allocate_buffers(weights: PanelWeights, sizes: PredictorSizes, groups: int, rows: int) -> FrameBuffers:
    """Buffers for frames of up to `rows` rows; outputs of a product are as wide as its panels."""

    def buffer(*shape: int) -> Any:
        return array(torch.zeros(rows, *shape))

    def output(panels: Array) -> Any:
        return buffer(panels.shape[-3] * PANEL)

    cache = (len(weights.qkv), rows, sizes.kv_heads, groups, sizes.head_dim)
    return FrameBuffers(
        residual=buffer(sizes.hidden),
        x=buffer(sizes.hidden),
        qkv=output(weights.qkv),
        attended=buffer(sizes.heads * sizes.head_dim),
        update=output(weights.out),
        gate_up=output(weights.gate_up),
        logits=output(weights.heads),
        scores=buffer(groups),
        keys=array(torch.zeros(cache)),
        values=array(torch.zeros(cache)),
        order=np.zeros(sizes.codebook, np.int64),
        mass=np.zeros(sizes.codebook),
    )
