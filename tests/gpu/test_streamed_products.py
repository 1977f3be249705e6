"""`StreamedProducts` against PyTorch; on a GPU, else compiled for the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize
from voxgate.pipeline.cuda.nvrtc import Launch
from voxgate.pipeline.cuda.self_test import is_close
from voxgate.pipeline.talker.cuda.attention import SOURCE as ATTENTION
from voxgate.pipeline.talker.cuda.attention import CacheFormat, CudaAttention, attention_source, block_heads
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.cuda.streamed_products import (
    LEAST_WARPS,
    MOST_ROWS,
    SOURCE,
    ProductShape,
    StreamedProducts,
    product_shapes,
    self_test,
    unsupported,
)
from voxgate.pipeline.talker.cuda.tiles import PRODUCT_TILES, Epilogue, attention_split

from .cuda_on_cpu import cpu_launch

SIZE, BLOCKS = TransformerSize(512, 1024, 1, 4, 2, 128, 1e-6, 1e4), 16
PUBLISHED = {
    "1.7B": TransformerSize(2048, 6144, 28, 16, 8, 128, 1e-6, 1e6),
    "0.6B": TransformerSize(1024, 3072, 28, 16, 8, 128, 1e-6, 1e6),
}
SHARED_OF_HOPPER = 232_448
PAGE = 16


def products(device: torch.device, folder: Path, order: int = 0, blocks: int = BLOCKS) -> StreamedProducts:
    """On a CPU each kernel has the rows that those before it write only once it has waited for them."""
    rows: list[Tensor] = []

    def on_cpu(shape: ProductShape) -> Launch:
        own = folder / f"{shape.rows}-{shape.depth}-{shape.lines}"
        own.mkdir()
        return cpu_launch(SOURCE, shape.source().macros, own, order, rows)

    made = StreamedProducts(SIZE, device, None if device.type == "cuda" else on_cpu, blocks=blocks)
    rows += [made.residual, made.x, made.sum_sq, made.attended, made._inner, made._queries]
    return made


def layer(device: torch.device) -> LayerWeights:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).div(shape[-1] ** 0.5).bfloat16().to(device)

    matrices = random(1024, 512), random(512, 512), random(2048, 512), random(512, 1024)
    return LayerWeights(*matrices, random(128), random(128))


def test_the_test_covers_all_variants() -> None:
    assert product_shapes(SIZE, BLOCKS).keys() == PRODUCT_TILES.keys()


@pytest.mark.parametrize("order", range(4))
def test_products_equal_torch(device: torch.device, tmp_path: Path, order: int) -> None:
    assert self_test(products(device, tmp_path, order), layer(device), SIZE)


def test_products_of_four_warps_a_block_equal_torch(device: torch.device, tmp_path: Path) -> None:
    """As those of the 0.6B, which all have the kernels of the most rows."""
    shapes = product_shapes(SIZE, 4 * BLOCKS)
    assert shapes.keys() == product_shapes(PUBLISHED["0.6B"]).keys() == {MOST_ROWS}
    for own in (shapes, product_shapes(PUBLISHED["0.6B"])):
        assert LEAST_WARPS in {shape.warps for shape in own[MOST_ROWS]}
    assert self_test(products(device, tmp_path, blocks=4 * BLOCKS), layer(device), SIZE)


@pytest.mark.parametrize("matrix", ["qkv", "out", "gate_up", "down"])
def test_other_weights_fail_the_self_test(
    device: torch.device, tmp_path: Path, matrix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, weights = products(device, tmp_path), layer(device)
    changed = replace(weights, **{matrix: getattr(weights, matrix).clone()})
    # As much as a warp multiplies in one instruction.
    getattr(changed, matrix)[-16:, -16:] = 1.0
    kept = {name: getattr(StreamedProducts, name) for name in ("queries_keys_values", "add_output_and_mlp")}
    for name, method in kept.items():
        monkeypatch.setattr(own, name, lambda _layer, count, run=method: run(own, changed, count))
    assert not self_test(own, weights, SIZE)


def test_layers_are_the_same_with_them(device: torch.device, tmp_path: Path) -> None:
    """Of three rows with cached positions, in two layers: with the matrix library, and with streamed products."""
    rows, cache_format = 3, CacheFormat(PAGE, torch.bfloat16)

    def on_cpu(split: int) -> Launch:
        blocks = rows * SIZE.kv_heads // block_heads(SIZE, split)
        return cpu_launch(ATTENTION, {**attention_source(SIZE, cache_format, split).macros, "BLOCKS": blocks}, tmp_path)

    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).bfloat16().to(device)

    angles = random(64, SIZE.head_dim)
    launches = None if device.type == "cuda" else on_cpu
    attention = CudaAttention(SIZE, angles, cache_format, launches, split=attention_split(rows))
    positions, pages = torch.tensor([20, 5, 0]), torch.tensor([[1, 2], [3, 0], [4, 0]], dtype=torch.int32)
    batch = BatchRows(
        torch.arange(rows).to(device),
        positions.to(device),
        torch.tensor([2 * PAGE + 4, 3 * PAGE + 5, 4 * PAGE]).to(device),
        pages.to(device),
        torch.arange(rows + 1, dtype=torch.int32).to(device),
    )
    norm = 1 + random(SIZE.hidden) / 4
    embedded, cached = random(rows, SIZE.hidden), random(2, 5, SIZE.kv_heads, PAGE, 2 * SIZE.head_dim)
    results = []
    for streamed in (None, products(device, tmp_path)):
        caches = cached.clone()
        own = GpuBackbone([layer(device)] * 2, norm, angles, SIZE, rows, attention=attention, streamed=streamed)
        results.append((own(embedded, batch, list(caches))[:, : SIZE.hidden], caches - cached))
    (library, library_caches), (own_states, own_caches) = results
    assert library_caches.count_nonzero() > 0
    assert is_close(own_states, library, 0.02)
    assert is_close(own_caches, library_caches, 0.02)


@pytest.mark.parametrize("size", PUBLISHED.values(), ids=PUBLISHED)
def test_published_sizes_are_supported_and_fit(size: TransformerSize) -> None:
    assert unsupported(size, torch.bfloat16) is None
    shapes = product_shapes(size)
    assert MOST_ROWS in shapes
    assert all(shape.shared_bytes <= SHARED_OF_HOPPER for own in shapes.values() for shape in own)


def test_other_sizes_and_precisions_are_not() -> None:
    for size in (replace(PUBLISHED["1.7B"], hidden=2080), replace(PUBLISHED["1.7B"], intermediate=6000)):
        assert unsupported(size, torch.bfloat16) == "the model has another size or precision"
    assert unsupported(PUBLISHED["1.7B"], torch.float16) is not None


def test_a_thread_adds_to_one_part_of_the_residual_stream() -> None:
    out = product_shapes(PUBLISHED["1.7B"])[MOST_ROWS][1]
    assert out.epilogue is Epilogue.ADD
    assert out.fits
    assert not replace(out, lines=8 * out.lines, depth=out.depth, blocks=out.blocks // 8).fits
