"""Runs vLLM's backbone with the layers of `talker/cuda`: vLLM's weights, cache and batches, without its kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...checkpoint.checkpoint import TransformerSize
from ..cuda.backbone import backbone_for
from ..cuda.backbone_kernels import BatchRows, LayerWeights
from .compat import attention_batch

_BACKEND = "FLASH_ATTN"
"""vLLM's attention backend whose cache layout `paged_attention` reads."""


class BackboneAdapter:
    """Computes steps of up to `max_rows` rows; vLLM's own layers compute larger ones over the same cache.

    `model`: vLLM's Qwen3, its weights loaded. The weights of each norm are multiplied into the matrix after it, which
    both implementations then use. `streamed_layers`: as of `backbone_for`.
    """

    def __init__(self, model: Any, size: TransformerSize, max_rows: int, *, streamed_layers: bool = False) -> None:
        self._attention = [layer.self_attn.attn for layer in model.layers]
        self.max_rows = max_rows
        layers = []
        for layer in model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            _fold_norm(layer.input_layernorm, attention.qkv_proj)
            _fold_norm(layer.post_attention_layernorm, mlp.gate_up_proj)
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
        rope = model.layers[0].self_attn.rotary_emb.cos_sin_cache
        self._layers = backbone_for(layers, model.norm.weight, rope, size, max_rows, streamed_layers=streamed_layers)

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether the model is half precision with heads of 2^n channels and a cache in the expected layout."""
        attention = model.layers[0].self_attn.attn
        name, width = attention.attn_backend.get_name(), attention.head_size
        half = model.norm.weight.dtype in (torch.bfloat16, torch.float16)
        return bool(name == _BACKEND and half and width & (width - 1) == 0)

    def __call__(self, slots: Tensor, positions: Tensor, embedded: Tensor) -> Tensor | None:
        """Hidden states with row tags, of `embedded` [n, hidden]; None where vLLM's layers have to compute the step.

        `slots`: int [n]; `positions`: int64 [n]. Only inside vLLM's forward pass.
        """
        if len(embedded) > self.max_rows or (batch := attention_batch(self._attention[0].layer_name)) is None:
            return None
        rows = BatchRows(slots, positions, batch.slot_mapping, batch.block_table, batch.query_start_loc)
        return self._layers(embedded, rows, [attention.kv_cache for attention in self._attention])


def _fold_norm(norm: Any, linear: Any) -> None:
    with torch.no_grad():
        linear.weight.copy_(linear.weight.float() * norm.weight.float())
        norm.weight.fill_(1.0)
