"""vLLM's backbone as `GpuBackbone` runs it: its weights, its cache and its batches, without its kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.forward_context import get_forward_context

from ...checkpoint import TransformerSize
from ..cuda.backbone import backbone_for
from ..cuda.backbone_kernels import BatchRows, LayerWeights

_BACKEND = "FLASH_ATTN"
"""vLLM's attention whose cache `paged_attention` can read."""


class BackboneAdapter:
    """Takes the steps of up to `max_rows` rows; vLLM's layers take the others, over the same cache.

    `model`: vLLM's, its weights loaded. The norms' weights are multiplied into the matrices behind them, for both.
    """

    def __init__(self, model: Any, size: TransformerSize, max_rows: int, *, streamed_layers: bool = False) -> None:
        """`streamed_layers`: as of `backbone_for`."""
        self._attention = [layer.self_attn.attn for layer in model.layers]
        self.max_rows = max_rows
        layers = []
        for layer in model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            _fold(layer.input_layernorm, attention.qkv_proj)
            _fold(layer.post_attention_layernorm, mlp.gate_up_proj)
            layers.append(
                LayerWeights(
                    attention.qkv_proj.weight,
                    attention.o_proj.weight,
                    mlp.gate_up_proj.weight,
                    mlp.down_proj.weight,
                    attention.q_norm.weight,
                    attention.k_norm.weight,
                )
            )
        angles = model.layers[0].self_attn.rotary_emb.cos_sin_cache
        self._layers = backbone_for(layers, model.norm.weight, angles, size, max_rows, streamed_layers=streamed_layers)

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether it knows how to run this model: half precision, heads of 2^n channels, a cache as it reads it."""
        attention = model.layers[0].self_attn.attn
        name, width = attention.attn_backend.get_name(), attention.head_size
        half = model.norm.weight.dtype in (torch.bfloat16, torch.float16)
        return bool(name == _BACKEND and half and width & (width - 1) == 0)

    def __call__(self, slots: Tensor, positions: Tensor, embedded: Tensor) -> Tensor | None:
        """`embedded` [n, hidden] through all layers, as `GpuBackbone` returns it; None where vLLM's are to be taken.

        `slots`: int [n]; `positions`: int64 [n]. To be called in vLLM's forward context.
        """
        context = get_forward_context()
        if context.attn_metadata is None or len(embedded) > self.max_rows:
            return None
        batch = context.attn_metadata[self._attention[0].layer_name]
        rows = BatchRows(slots, positions, batch.slot_mapping, batch.block_table, batch.query_start_loc)
        return self._layers(embedded, rows, [attention.kv_cache for attention in self._attention])


def _fold(norm: Any, linear: Any) -> None:
    with torch.no_grad():
        linear.weight.copy_(linear.weight.float() * norm.weight.float())
        norm.weight.fill_(1.0)
