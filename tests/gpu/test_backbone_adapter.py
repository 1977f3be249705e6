"""This project's layers are used only where their first layers equal vLLM's, over vLLM's cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize
from voxgate.pipeline.cuda import fast_paths
from voxgate.pipeline.cuda.chip import chip_limits
from voxgate.pipeline.cuda.fast_paths import FastPath
from voxgate.pipeline.talker.cuda import backbone as gpu_backbone
from voxgate.pipeline.talker.cuda.attention import CacheFormat, PagedAttention, TritonAttention
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.reference.row_tags import TAG_CHANNELS
from voxgate.pipeline.talker.vllm import backbone
from voxgate.pipeline.talker.vllm.backbone import BackboneAdapter
from voxgate.pipeline.talker.vllm.compat import ATTENTION_BACKEND, AttentionBatch

SIZE = TransformerSize(48, 80, 3, 4, 2, 16, 1e-6, 1e4)
PAGE, PAGES, POSITIONS, MOST = 16, 9, 64, 32
# Triton's interpreter does not support products of bfloat16.
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float16


class Float8Attention:
    """Attention over a cache in float8, by way of one in half precision."""

    def __init__(self, own: PagedAttention) -> None:
        self._own = own

    def __call__(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        assert cache.dtype is torch.float8_e4m3fn
        wide = cache.to(DTYPE)
        self._own(qkv, layer, wide, rows, out)
        cache.copy_(wide.to(cache.dtype))


class QwenModel:
    """In place of vLLM's model: the same arithmetic, or with `error` another."""

    def __init__(self, device: torch.device, error: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(1)

        def random(*shape: int) -> Tensor:
            return (torch.randn(shape, generator=generator) * shape[-1] ** -0.5).to(device, DTYPE)

        def parameter(*shape: int) -> SimpleNamespace:
            return SimpleNamespace(weight=random(*shape))

        queries, keys = SIZE.heads * SIZE.head_dim, SIZE.kv_heads * SIZE.head_dim
        radians = torch.arange(POSITIONS)[:, None] * SIZE.rope_theta ** -(
            torch.arange(0, SIZE.head_dim, 2) / SIZE.head_dim
        )
        rotary = SimpleNamespace(cos_sin_cache=torch.cat([radians.cos(), radians.sin()], -1).to(device))
        self.layers = [
            SimpleNamespace(
                self_attn=SimpleNamespace(
                    attn=SimpleNamespace(
                        layer_name=f"layer {number}",
                        kv_cache=torch.zeros(PAGES, SIZE.kv_heads, PAGE, 2 * SIZE.head_dim, device=device, dtype=DTYPE),
                        attn_backend=SimpleNamespace(get_name=lambda: ATTENTION_BACKEND),
                        head_size=SIZE.head_dim,
                    ),
                    qkv_proj=parameter(queries + 2 * keys, SIZE.hidden),
                    o_proj=parameter(SIZE.hidden, queries),
                    q_norm=parameter(SIZE.head_dim),
                    k_norm=parameter(SIZE.head_dim),
                    rotary_emb=rotary,
                ),
                mlp=SimpleNamespace(
                    gate_up_proj=parameter(2 * SIZE.intermediate, SIZE.hidden),
                    down_proj=parameter(SIZE.hidden, SIZE.intermediate),
                ),
                input_layernorm=parameter(SIZE.hidden),
                post_attention_layernorm=parameter(SIZE.hidden),
            )
            for number in range(SIZE.layers)
        ]
        self.norm = parameter(SIZE.hidden)
        self.end_layer, self.error = SIZE.layers, error
        self.attention: Float8Attention | None = None
        self.batch: AttentionBatch | None = None
        self.calls: list[int] = []

    def __call__(self, _ids: Any, positions: Tensor, _intermediate: None, *, inputs_embeds: Tensor) -> Tensor:
        self.calls.append(self.end_layer)
        assert self.batch is not None
        layers = [
            LayerWeights(
                layer.self_attn.qkv_proj.weight,
                layer.self_attn.o_proj.weight,
                layer.mlp.gate_up_proj.weight,
                layer.mlp.down_proj.weight,
                layer.self_attn.q_norm.weight,
                layer.self_attn.k_norm.weight * (1 + self.error),
            )
            for layer in self.layers[: self.end_layer]
        ]
        angles = self.layers[0].self_attn.rotary_emb.cos_sin_cache
        own = GpuBackbone(layers, self.norm.weight, angles, SIZE, MOST, attention=self.attention)
        batch = self.batch
        rows = BatchRows(positions, positions, batch.slot_mapping, batch.block_table, batch.query_start_loc)
        caches = [layer.self_attn.attn.kv_cache for layer in self.layers[: self.end_layer]]
        if self.attention is not None:
            caches = [cache.view(torch.float8_e4m3fn) for cache in caches]
        return own(inputs_embeds, rows, caches)[:, :-TAG_CHANNELS]


@pytest.fixture
def batch(device: torch.device) -> AttentionBatch:
    """Requests with 33 and 20 cached positions, of which 1 and 5 more are computed."""
    table = torch.tensor([[1, 2, 3], [4, 5, 0]], dtype=torch.int32, device=device)
    places = [3 * PAGE + 1, *(5 * PAGE + at for at in range(4, 9))]
    starts = torch.tensor([0, 1, 6], dtype=torch.int32, device=device)
    return AttentionBatch(torch.tensor(places, device=device), table, starts)


def adapted(model: QwenModel, batch: AttentionBatch, monkeypatch: pytest.MonkeyPatch) -> BackboneAdapter:
    model.batch = batch
    monkeypatch.setattr(backbone, "attention_batch", lambda _name: batch)
    attention = TritonAttention(SIZE, backbone.rope_angles(model), pdl=chip_limits().has_early_launch)
    return BackboneAdapter(model, SIZE, MOST, attention, CacheFormat(PAGE, DTYPE))


def step(adapter: BackboneAdapter, device: torch.device) -> Tensor | None:
    positions = torch.tensor([33, 20, 21, 22, 23, 24], device=device)
    slots = torch.zeros(6, dtype=torch.int64, device=device)
    return adapter(slots, positions, torch.zeros(6, SIZE.hidden, dtype=DTYPE, device=device))


def test_layers_that_equal_those_of_vllm_pass(
    device: torch.device, batch: AttentionBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = QwenModel(device)
    adapter = adapted(model, batch, monkeypatch)
    assert adapter.self_test(lambda: step(adapter, device)) is None
    assert model.calls == [2], "vLLM's first layers ran once"
    assert model.end_layer == SIZE.layers
    assert step(adapter, device) is not None
    assert model.calls == [2], "vLLM's layers run in the self-test only"


def test_layers_that_differ_from_those_of_vllm_fail(
    device: torch.device, batch: AttentionBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapted(QwenModel(device, error=1.0), batch, monkeypatch)
    assert adapter.self_test(lambda: step(adapter, device)) == "self-test differs from vLLM"


class WrongProducts:
    """In place of the products of few rows: every sum is zero."""

    def __init__(self, device: torch.device) -> None:
        self.residual = torch.zeros(MOST, SIZE.hidden, device=device)
        self.x = torch.zeros(MOST, SIZE.hidden, device=device, dtype=DTYPE)
        self.sum_sq = torch.zeros(MOST, 1, device=device)
        self.attended = torch.zeros(MOST, SIZE.heads * SIZE.head_dim, device=device, dtype=DTYPE)

    def queries_keys_values(self, layer: LayerWeights, count: int) -> Tensor:
        return layer.qkv.new_zeros(count, len(layer.qkv))

    def add_output_and_mlp(self, _layer: LayerWeights, _count: int) -> None:
        """Adds nothing."""


@pytest.mark.parametrize(
    ("error", "reason", "products"),
    [(0.0, None, "the layers differ from vLLM with them"), (1.0, "self-test differs from vLLM", "")],
)
def test_layers_that_differ_with_products_of_few_rows_are_tested_without_them(
    error: float,
    reason: str | None,
    products: str,
    device: torch.device,
    batch: AttentionBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_outcomes", {FastPath.PRODUCTS: ""})
    monkeypatch.setattr(backbone, "streamed_products_for", lambda *_: WrongProducts(device))
    # One sum for a row of this size, where the products have at least 32.
    monkeypatch.setattr(gpu_backbone, "init_streamed", {(6,): lambda *_, **__: None})
    model = QwenModel(device, error)
    adapter = adapted(model, batch, monkeypatch)
    assert adapter.self_test(lambda: step(adapter, device)) == reason
    assert model.calls == [2, 2]
    assert fast_paths.outcomes() == {FastPath.PRODUCTS: products}


def test_self_test_without_a_step_fails(
    device: torch.device, batch: AttentionBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapted(QwenModel(device), batch, monkeypatch)
    assert adapter.self_test(lambda: None) == "self-test differs from vLLM"


@pytest.mark.parametrize(("error", "reason"), [(0.0, None), (1.0, "self-test differs from vLLM")])
def test_cache_in_float8_is_the_bytes_of_vllm(
    device: torch.device, batch: AttentionBatch, monkeypatch: pytest.MonkeyPatch, error: float, reason: str | None
) -> None:
    model = QwenModel(device, error)
    for layer in model.layers:
        layer.self_attn.attn.kv_cache = layer.self_attn.attn.kv_cache.to(torch.float8_e4m3fn).view(torch.uint8)
    own = TritonAttention(SIZE, backbone.rope_angles(model), pdl=chip_limits().has_early_launch)
    model.attention, model.batch = Float8Attention(own), batch
    monkeypatch.setattr(backbone, "attention_batch", lambda _name: batch)
    adapter = BackboneAdapter(model, SIZE, MOST, model.attention, CacheFormat(PAGE, torch.float8_e4m3fn))
    assert adapter.self_test(lambda: step(adapter, device)) == reason
    assert step(adapter, device) is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cache: cache.permute(0, 2, 1, 3).contiguous(), "shape"),
        (lambda cache: cache.float(), "type torch.float32"),
        (lambda cache: cache.transpose(2, 3).contiguous().transpose(2, 3), "strides"),
    ],
    ids=["order", "type", "strides"],
)
def test_cache_of_another_layout_is_refused(
    device: torch.device, batch: AttentionBatch, monkeypatch: pytest.MonkeyPatch, change: Any, reason: str
) -> None:
    model = QwenModel(device)
    adapter = adapted(model, batch, monkeypatch)
    attention = model.layers[1].self_attn.attn
    attention.kv_cache = change(attention.kv_cache)
    found = adapter.self_test(lambda: step(adapter, device))
    assert found is not None
    assert reason in found


def test_other_backends_and_precisions_are_named(device: torch.device) -> None:
    model = QwenModel(device)
    assert BackboneAdapter.unsupported(model) is None
    model.layers[0].self_attn.attn.attn_backend.get_name = lambda: "FLASHINFER"
    assert BackboneAdapter.unsupported(model) == (
        "vLLM's attention backend is FLASHINFER, they read the cache of FLASH_ATTN"
    )
    model = QwenModel(device)
    model.norm.weight = model.norm.weight.float()
    assert BackboneAdapter.unsupported(model) == "the talker computes in float32"
