"""Runs vLLM's backbone with the layers of `talker/cuda`: vLLM's weights, cache and batches, without its kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...checkpoint.checkpoint import TransformerSize
from ...cuda.chip import chip_limits
from ...cuda.fast_paths import FastPath
from ...cuda.self_test import RandomInputs, disabled, is_close
from ..cuda.attention import CacheFormat, PagedAttention
from ..cuda.backbone import GpuBackbone
from ..cuda.backbone_kernels import BatchRows, LayerWeights
from ..cuda.streamed_products import streamed_products_for
from ..reference.row_tags import TAG_CHANNELS
from .compat import ATTENTION_BACKEND, attention_batch

TEST_LAYERS = 2
"""Layers of the self-test: the least in which one layer reads what another has computed."""
TOLERANCE = 0.1
"""Largest relative difference from vLLM's layers, of states and of cache, that the self-test accepts.

vLLM rounds queries, keys and residual sums to half precision where these layers do not, which is some percent at most;
a cache in another layout differs by as much as it holds.
"""


class BackboneAdapter:
    """Computes steps of up to `max_rows` rows; vLLM's own layers compute larger ones over the same cache.

    `model`: vLLM's Qwen3, its weights loaded. The weights of each norm are multiplied into the matrix after it, which
    both implementations then use.
    """

    def __init__(
        self, model: Any, size: TransformerSize, max_rows: int, attention: PagedAttention, cache: CacheFormat
    ) -> None:
        """`attention`: over vLLM's cache, which has the format `cache`."""
        self._model, self._size, self._format = model, size, cache
        self._caches: list[Tensor] = []
        """vLLM's cache of each layer, in its own type; known once `self_test` has begun."""
        self._attention = [layer.self_attn.attn for layer in model.layers]
        self.max_rows = max_rows
        self._compared: list[bool] | None = None
        """During the self-test: for each step, whether it equalled vLLM's."""
        layers = []
        for layer in model.layers:
            heads, mlp = layer.self_attn, layer.mlp
            _fold_norm(layer.input_layernorm, heads.qkv_proj)
            _fold_norm(layer.post_attention_layernorm, mlp.gate_up_proj)
            layers.append(
                LayerWeights(
                    heads.qkv_proj.weight,
                    heads.o_proj.weight,
                    mlp.gate_up_proj.weight,
                    mlp.down_proj.weight,
                    heads.q_norm.weight,
                    heads.k_norm.weight,
                )
            )
        rope, norm = rope_angles(model), model.norm.weight
        products = streamed_products_for(layers[0], size, chip_limits())
        backbone = partial(GpuBackbone, attention=attention, streamed=products)
        self._layers = backbone(layers, norm, rope, size, max_rows)
        self._first_layers = backbone(layers[:TEST_LAYERS], norm, rope, size, max_rows)

    @staticmethod
    def unsupported(model: Any) -> str | None:
        """Why vLLM's layers are used; None for half precision, heads of 2^n channels and the expected backend."""
        attention = model.layers[0].self_attn.attn
        name, width = attention.attn_backend.get_name(), attention.head_size
        if name != ATTENTION_BACKEND:
            return f"vLLM's attention backend is {name}, they read the cache of {ATTENTION_BACKEND}"
        if model.norm.weight.dtype not in (torch.bfloat16, torch.float16):
            return "the talker computes in float32"
        return f"a head has {width} channels, no power of two" if width & (width - 1) else None

    def self_test(self, steps: Callable[[], object]) -> str | None:
        """Why these layers cannot be used; None when the first ones equal vLLM's in every step that `steps` runs.

        Before it vLLM must have made the cache, and captured no graph. Layers that differ with the `StreamedProducts`
        are tested again without them.
        """
        size = self._size
        for attention in self._attention:
            cache = attention.kv_cache
            if cache.dim() != 4 or cache.shape[1] != size.kv_heads or cache.shape[3] != 2 * size.head_dim:
                return f"vLLM's cache has the shape {list(cache.shape)}"
            # vLLM has no type for float8, only for its bytes.
            if cache.dtype is torch.uint8 and self._format.dtype.itemsize == 1:
                cache = cache.view(self._format.dtype)
            if cache.stride(3) != 1 or cache.dtype != self._format.dtype or cache.shape[2] != self._format.page:
                return (
                    f"vLLM's cache has the strides {list(cache.stride())}, the type {cache.dtype} and "
                    f"{cache.shape[2]} positions a page"
                )
            self._caches.append(cache)
        passed = self._equals_vllm_in(steps)
        if not passed and self._layers.streams:
            for layers in (self._layers, self._first_layers):
                layers.leave_products_to_library()
            if passed := self._equals_vllm_in(steps):
                disabled(FastPath.PRODUCTS, "the layers differ from vLLM with them")
        return None if passed else "self-test differs from vLLM"

    def _equals_vllm_in(self, steps: Callable[[], object]) -> bool:
        self._compared = []
        try:
            steps()
            return bool(self._compared) and all(self._compared)
        finally:
            self._compared = None

    def __call__(self, slots: Tensor, positions: Tensor, embedded: Tensor) -> Tensor | None:
        """Hidden states with row tags, of `embedded` [n, hidden]; None where vLLM's layers have to compute the step.

        `slots`: int [n]; `positions`: int64 [n]. Only inside vLLM's forward pass.
        """
        if len(embedded) > self.max_rows or (batch := attention_batch(self._attention[0].layer_name)) is None:
            return None
        rows = BatchRows(slots, positions, batch.slot_mapping, batch.block_table, batch.query_start_loc)
        if self._compared is not None:
            self._compared.append(self._equals_vllm(RandomInputs().normal(*embedded.shape).to(embedded), rows))
        return self._layers(embedded, rows, self._caches)

    def _equals_vllm(self, embedded: Tensor, rows: BatchRows) -> bool:
        """Whether both implementations of the first layers give the same states and cache, over a random cache."""
        model, pages = self._model, torch.unique(rows.pages).long()
        caches = self._caches[:TEST_LAYERS]
        pasts = [
            RandomInputs(number).normal(len(pages), *cache.shape[1:]).to(cache) for number, cache in enumerate(caches)
        ]
        # By their bytes, because PyTorch does not index float8.
        parts = [cache.view(torch.uint8) for cache in caches]
        results = []
        last_layer = model.end_layer
        model.end_layer = TEST_LAYERS
        try:
            for run in (self._first_layers, None):
                for part, past in zip(parts, pasts, strict=True):
                    part[pages] = past.view(torch.uint8)
                if run is None:
                    states = model(rows.slots, rows.positions, None, inputs_embeds=embedded)
                else:
                    states = run(embedded, rows, caches)[:, :-TAG_CHANNELS]
                written = [
                    part[pages].view(past.dtype).float() - past.float() for part, past in zip(parts, pasts, strict=True)
                ]
                results.append([states, *written])
        finally:
            model.end_layer = last_layer
        return all(is_close(own, expected, TOLERANCE) for own, expected in zip(*results, strict=True))


def rope_angles(model: Any) -> Tensor:
    """Cosines and then sines of each position, [positions, head_dim], of vLLM's Qwen3 `model`."""
    angles: Tensor = model.layers[0].self_attn.rotary_emb.cos_sin_cache
    return angles


def _fold_norm(norm: Any, linear: Any) -> None:
    with torch.no_grad():
        linear.weight.copy_(linear.weight.float() * norm.weight.float())
        norm.weight.fill_(1.0)
