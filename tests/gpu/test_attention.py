"""`CudaAttention` against PyTorch; on a GPU, else compiled for the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize
from voxgate.pipeline.cuda.nvrtc import Launch
from voxgate.pipeline.talker.cuda.attention import (
    SOURCE,
    TEST_ROWS,
    CacheFormat,
    CudaAttention,
    attention_source,
    block_heads,
    self_test,
)
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.cuda.tiles import ATTENTION_SPLITS, attention_split

from .cuda_on_cpu import cpu_launch

SIZE = TransformerSize(48, 80, 2, 4, 2, 128, 1e-6, 1e4)
POSITIONS = 1024


def angles_of(size: TransformerSize, device: torch.device) -> Tensor:
    frequencies = size.rope_theta ** -(torch.arange(0, size.head_dim, 2) / size.head_dim)
    radians = torch.arange(POSITIONS)[:, None] * frequencies
    return torch.cat([radians.cos(), radians.sin()], -1).to(device, torch.bfloat16)


def attention(
    size: TransformerSize,
    cache: CacheFormat,
    split: int,
    device: torch.device,
    folder: Path,
    angles: Tensor | None = None,
) -> CudaAttention:
    """With the kernel for the self-test's step; on a CPU it has its input only once it has waited for it."""
    late: list[Tensor] = []

    class Attention(CudaAttention):
        def __call__(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
            late[:] = qkv, out
            super().__call__(qkv, layer, cache, rows, out)

    def on_cpu(split: int) -> Launch:
        blocks = (sum(TEST_ROWS) + 1) * size.kv_heads // block_heads(size, split)
        macros = attention_source(size, cache, split).macros
        return cpu_launch(SOURCE, {**macros, "BLOCKS": blocks}, folder, late=late)

    launches = None if device.type == "cuda" else on_cpu
    return Attention(size, angles_of(size, device) if angles is None else angles, cache, launches, split=split)


@pytest.mark.parametrize("split", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=["bfloat16", "float8"])
@pytest.mark.parametrize(
    ("heads", "kv", "dim", "page"),
    [(4, 2, 128, 16), (2, 2, 128, 32), (16, 2, 64, 16)],
    ids=["as published", "one query a key", "eight queries a key"],
)
def test_attention_equals_torch(
    device: torch.device, tmp_path: Path, split: int, dtype: torch.dtype, heads: int, kv: int, dim: int, page: int
) -> None:
    size, cache = replace(SIZE, heads=heads, kv_heads=kv, head_dim=dim), CacheFormat(page, dtype)
    assert self_test(attention(size, cache, split, device, tmp_path), size, angles_of(size, device), cache)


def test_self_test_does_not_depend_on_defaults_of_torch(device: torch.device, tmp_path: Path) -> None:
    """vLLM sets them while it loads a model."""
    cache = CacheFormat(16, torch.bfloat16)
    own, angles = attention(SIZE, cache, 2, device, tmp_path), angles_of(SIZE, device)
    with torch.device("meta"):
        assert self_test(own, SIZE, angles, cache)


def test_self_test_fits_into_short_generations(device: torch.device, tmp_path: Path) -> None:
    cache, angles = CacheFormat(16, torch.bfloat16), angles_of(SIZE, device)[:24]
    assert self_test(attention(SIZE, cache, 1, device, tmp_path, angles), SIZE, angles, cache)


class BrokenAttention:
    """In place of `CudaAttention`: leaves out the keys and values, or what else `broken` names."""

    def __init__(self, own: CudaAttention, broken: str) -> None:
        self._own, self._broken = own, broken

    def __call__(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        before = cache.clone()
        self._own(qkv, layer, cache, rows, out)
        if self._broken == "cache":
            cache.copy_(before)
        elif self._broken == "one row":
            out[3] = 0
        else:
            cache[-1, 0, 0, 0] = 7


@pytest.mark.parametrize("broken", ["cache", "one row", "another's page"])
def test_self_test_finds_an_attention_that_computes_something_else(
    device: torch.device, tmp_path: Path, broken: str
) -> None:
    cache = CacheFormat(16, torch.bfloat16)
    own = BrokenAttention(attention(SIZE, cache, 2, device, tmp_path), broken)
    assert not self_test(own, SIZE, angles_of(SIZE, device), cache)


@pytest.mark.parametrize(
    ("size", "dtype", "page", "reason"),
    [
        (replace(SIZE, head_dim=96), torch.bfloat16, 16, "the model has another size"),
        (replace(SIZE, heads=32), torch.bfloat16, 16, "the model has another size"),
        (SIZE, torch.bfloat16, 8, "the model has another size"),
        (SIZE, torch.float16, 16, "the model has another precision"),
        (SIZE, torch.float8_e4m3fn, 32, None),
    ],
)
def test_other_models_are_left_to_triton(
    size: TransformerSize, dtype: torch.dtype, page: int, reason: str | None
) -> None:
    angles = angles_of(size, torch.device("cpu"))
    assert CudaAttention.unsupported(size, angles, CacheFormat(page, dtype)) == reason


@pytest.mark.parametrize("rows", [1, 16, 17, 48, 49, 96, 97, 2000])
def test_positions_are_divided_among_compiled_numbers_of_warps(rows: int) -> None:
    assert attention_split(rows) in ATTENTION_SPLITS
    assert attention_split(rows) * rows * 8 <= 1600 or attention_split(rows) == 1, "the warps find room at once"


@pytest.mark.parametrize(("split", "heads", "resident"), [(1, 4, 3), (2, 2, 3), (4, 1, 3), (8, 1, 1)])
def test_blocks_have_whole_heads(split: int, heads: int, resident: int) -> None:
    size = replace(SIZE, heads=16, kv_heads=8)
    macros = attention_source(size, CacheFormat(16, torch.bfloat16), split).macros
    assert (block_heads(size, split), macros["WARPS"], macros["RESIDENT"]) == (heads, heads * split, resident)
