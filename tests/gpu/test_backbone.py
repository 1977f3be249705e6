"""The talker's layers on a GPU against the same maths written plainly, over a cache in pages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from voxgate.pipeline.checkpoint import TransformerSize
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.cuda.streamed_kernels import (
    ATTENTION_SOURCE,
    OUT_MLP_QKV_SOURCE,
    LayerTiling,
    OutMlpQkv,
    StreamedAttention,
)
from voxgate.pipeline.talker.cuda.streamed_layers import LayersFunction, StreamedLayers, self_test
from voxgate.pipeline.talker.reference.row_tags import split_row_tags

from .cuda_on_cpu import cpu_launch

SIZE = TransformerSize(48, 80, 2, 4, 2, 16, 1e-6, 1e4)
FEW = TransformerSize(256, 512, 2, 4, 2, 128, 1e-6, 1e4)
"""Of the kernels for a few rows."""
CUT = LayerTiling(FEW.hidden, 512, FEW.intermediate, 1024, span=128, ring=5, warps=4, down_passes=2, blocks=16, sums=32)
PAGE, PAGES, MOST = 16, 24, 200


@dataclass(frozen=True, slots=True)
class BatchCase:
    """`fresh`: rows of each request in this step; `cached`: positions of it before; `padding`: rows of nobody's."""

    fresh: tuple[int, ...]
    cached: tuple[int, ...]
    padding: int = 0


def normed(x: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + SIZE.norm_eps) * weight


def angles_of(dim: int) -> Tensor:
    turns = torch.arange(MOST)[:, None] * SIZE.rope_theta ** -(torch.arange(0, dim, 2) / dim)
    return torch.cat([turns.cos(), turns.sin()], -1)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """`x`: [n, heads, dim]; `angles`: [n, dim]."""
    cosine, sine = angles[:, None].chunk(2, -1)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


def plainly(
    embedded: Tensor, layers: list[LayerWeights], norm: Tensor, pasts: list[list[tuple[Tensor, Tensor]]], case: BatchCase,
    size: TransformerSize,
) -> tuple[Tensor, list[list[tuple[Tensor, Tensor]]]]:  # fmt: skip  # one argument list
    """Hidden states, and keys and values by layer and request with this step's; `pasts` are those before it."""
    angles, queries = angles_of(size.head_dim), size.heads * size.head_dim
    x, news = embedded, []
    positions = torch.cat([torch.arange(at, at + n) for n, at in zip(case.fresh, case.cached, strict=True)])
    for layer, past in zip(layers, pasts, strict=True):
        qkv = normed(x) @ layer.qkv.t()
        q, k, v = qkv.split([queries, size.kv_heads * size.head_dim, size.kv_heads * size.head_dim], -1)
        q = rotated(normed(q.unflatten(1, (-1, size.head_dim)), layer.q_norm), angles[positions])
        k = rotated(normed(k.unflatten(1, (-1, size.head_dim)), layer.k_norm), angles[positions])
        v = v.unflatten(1, (-1, size.head_dim))
        row, mixed, new = 0, [], []
        for fresh, (keys, values) in zip(case.fresh, past, strict=True):
            keys, values = torch.cat([keys, k[row : row + fresh]]), torch.cat([values, v[row : row + fresh]])
            new.append((keys, values))
            for number in range(fresh):
                until = len(keys) - fresh + number + 1
                seen = [t[:until].repeat_interleave(size.heads // size.kv_heads, 1) for t in (keys, values)]
                scores = torch.einsum("hd,phd->hp", q[row + number], seen[0]) * size.head_dim**-0.5
                mixed.append(torch.einsum("hp,phd->hd", scores.softmax(-1), seen[1]).flatten())
            row += fresh
        news.append(new)
        x = x + torch.stack(mixed) @ layer.out.t()
        gate, up = (normed(x) @ layer.gate_up.t()).chunk(2, 1)
        x = x + (F.silu(gate) * up) @ layer.down.t()
    return normed(x, norm), news


CASES = [
    BatchCase((1,), (0,)),
    BatchCase((1, 1, 1), (5, 70, 131), padding=1),
    BatchCase((1, 20, 1, 3), (17, 0, 64, 40), padding=7),
    BatchCase((40,), (2,)),
]


@pytest.mark.parametrize("case", CASES, ids=["one", "decoding", "with prompts", "a prompt's rest"])
def test_layers_are_those_written_plainly(case: BatchCase, device: torch.device) -> None:
    # Triton's interpreter cannot multiply bfloat16.
    compare(case, SIZE, torch.bfloat16 if device.type == "cuda" else torch.float16, device)


FEW_CASES = [
    *CASES[:2],
    BatchCase((1, 9, 1, 3), (17, 0, 64, 40), padding=2),
    BatchCase((15,), (2,)),
    BatchCase((1,) * 17, (3,) * 17),
]


@pytest.mark.parametrize("case", FEW_CASES, ids=["one", "decoding", "with prompts", "a prompt's rest", "more"])
def test_layers_of_a_few_rows_are_those_written_plainly(case: BatchCase, device: torch.device, tmp_path: Path) -> None:
    if device.type == "cuda" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the kernels are for Hopper")
    compare(case, FEW, torch.bfloat16, device, tmp_path)


def test_only_what_does_as_the_library_does_is_trusted() -> None:
    """As whoever makes the reference's states and cache does, and whoever is off, or not always the same, does not."""

    def way(*scales: float, spoilt: bool = False) -> LayersFunction:
        scale = itertools.cycle(scales)

        def run(embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor]) -> Tensor:
            for cache in caches:
                cache.transpose(1, 2).flatten(0, 1)[rows.cache_slots] = torch.nan if spoilt else 1.0
            return embedded.float() * next(scale)

        return run

    cpu = torch.device("cpu")
    assert self_test(way(1.0), way(1.001), FEW, 2, cpu)
    assert not self_test(way(1.0), way(1.1), FEW, 2, cpu)
    assert not self_test(way(1.0), way(1.0, spoilt=True), FEW, 2, cpu)
    assert not self_test(way(1.0), way(*[1.0] * 250, 1.001), FEW, 2, cpu)


def few_layers(layers: list[LayerWeights], angles: Tensor, rows: int, folder: Path) -> StreamedLayers:
    """The kernels for a few rows: of this GPU where there is one, else compiled for the CPU."""
    cuts = [replace(CUT, row_blocks=row_blocks) for row_blocks in (1, 2, 4)]
    if angles.is_cuda:
        return StreamedLayers(layers, angles, FEW, [OutMlpQkv(cut) for cut in cuts], StreamedAttention(FEW))
    rest = []
    for cut in cuts:
        (folder / str(cut.row_blocks)).mkdir()
        rest.append(OutMlpQkv(cut, cpu_launch(OUT_MLP_QKV_SOURCE, cut.macros(), folder / str(cut.row_blocks))))
    attend = StreamedAttention(FEW, launch=lambda *argument: launch(*argument), blocks=rows * FEW.kv_heads)
    launch = cpu_launch(ATTENTION_SOURCE, attend.macros, folder)
    return StreamedLayers(layers, angles, FEW, rest, attend, pdl=False)


def compare(
    case: BatchCase, size: TransformerSize, dtype: torch.dtype, device: torch.device, few: Path | None = None
) -> None:
    """A step through `GpuBackbone` against the same written plainly; `few`: a folder, and by way of `StreamedLayers`."""
    generator = torch.Generator().manual_seed(len(case.fresh))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).div(shape[-1] ** 0.5).to(dtype).float()

    hidden, inner, attention = size.hidden, size.intermediate, size.heads * size.head_dim
    kv = size.kv_heads * size.head_dim
    norms = [1 + 0.1 * random(size.head_dim) for _ in range(2 * size.layers)]
    layers = [
        LayerWeights(
            random(attention + 2 * kv, hidden),
            random(hidden, attention),
            random(2 * inner, hidden),
            random(hidden, inner),
            norms[2 * n],
            norms[2 * n + 1],
        )
        for n in range(size.layers)
    ]
    norm = 1 + 0.1 * random(hidden)
    pasts = [
        [tuple(random(at, size.kv_heads, size.head_dim) for _ in "kv") for at in case.cached]
        for _ in range(size.layers)
    ]
    embedded = random(sum(case.fresh), hidden) * hidden**0.5
    expected, news = plainly(embedded, layers, norm, pasts, case, size)  # type: ignore[arg-type]  # pairs

    # Pages in an order of their own, and more of each request than it has.
    order = torch.randperm(PAGES, generator=generator).int()
    pages = torch.zeros(len(case.fresh) + case.padding, MOST // PAGE + 1, dtype=torch.int32)
    taken = 0
    for number, (fresh, cached) in enumerate(zip(case.fresh, case.cached, strict=True)):
        count = -(-(fresh + cached) // PAGE)
        pages[number, :count] = order[taken : taken + count]
        taken += count
    # As vLLM has them: the heads of a place behind one another.
    caches = [torch.full((PAGES, PAGE, size.kv_heads, 2 * size.head_dim), torch.nan) for _ in layers]
    places, positions, starts = [], [], [0]
    for number, (fresh, cached) in enumerate(zip(case.fresh, case.cached, strict=True)):
        for cache, past in zip(caches, pasts, strict=True):
            for place in range(cached):
                page = int(pages[number, place // PAGE])
                cache[page, place % PAGE] = torch.cat([past[number][0][place], past[number][1][place]], -1)
        for place in range(cached, cached + fresh):
            places.append(int(pages[number, place // PAGE]) * PAGE + place % PAGE)
            positions.append(place)
        starts.append(starts[-1] + fresh)
    count = sum(case.fresh)
    own = [cache.to(device, dtype) for cache in caches]
    rows = BatchRows(
        torch.arange(300, 300 + count + case.padding, device=device),
        torch.tensor(positions + [0] * case.padding, device=device),
        torch.tensor(places + [-1] * case.padding, device=device),
        pages.to(device),
        torch.tensor(starts + [count] * case.padding, dtype=torch.int32, device=device),
    )
    given = [
        LayerWeights(*(getattr(layer, name).to(device, dtype) for name in LayerWeights.__slots__)) for layer in layers
    ]
    angles = angles_of(size.head_dim).to(device)
    way = few_layers(given, angles, count + case.padding, few) if few else None
    gpu = GpuBackbone(given, norm.to(device, dtype), angles, size, 64, streamed=way)
    padded = torch.cat([embedded, torch.full((case.padding, hidden), 7.0)]).to(device, dtype)
    states, slots, at = split_row_tags(gpu(padded, rows, [cache.permute(0, 2, 1, 3) for cache in own])[:count].cpu())
    assert torch.allclose(states.float(), expected, atol=0.05)
    # Triton's interpreter makes zero of a whole number in bfloat16.
    if device.type == "cuda" or dtype is not torch.bfloat16:
        assert slots.tolist() == list(range(300, 300 + count))
        assert at.tolist() == positions
    for cache, new in zip(own, news, strict=True):
        flat = cache.float().cpu().flatten(0, 1)
        row = 0
        for (keys, values), fresh in zip(new, case.fresh, strict=True):
            written = flat[places[row : row + fresh]]
            assert torch.allclose(written, torch.cat([keys[-fresh:], values[-fresh:]], -1), atol=0.05)
            row += fresh
