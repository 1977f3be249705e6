"""`GpuBackbone` against the same computation in PyTorch, over a paged cache."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.reference.row_tags import split_row_tags

SIZE = TransformerSize(48, 80, 2, 4, 2, 16, 1e-6, 1e4)
PAGE, PAGES, MAX_POSITIONS = 16, 24, 200


@dataclass(frozen=True, slots=True)
class BatchCase:
    """`fresh`: rows of each request in this step; `cached`: its positions in the cache; `padding`: padding rows."""

    fresh: tuple[int, ...]
    cached: tuple[int, ...]
    padding: int = 0


def normed(x: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + SIZE.norm_eps) * weight


def angles_of(dim: int) -> Tensor:
    radians = torch.arange(MAX_POSITIONS)[:, None] * SIZE.rope_theta ** -(torch.arange(0, dim, 2) / dim)
    return torch.cat([radians.cos(), radians.sin()], -1)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """`x`: [n, heads, dim]; `angles`: [n, dim]."""
    cosine, sine = angles[:, None].chunk(2, -1)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


def reference_layers(
    embedded: Tensor,
    layers: list[LayerWeights],
    norm: Tensor,
    pasts: list[list[tuple[Tensor, Tensor]]],
    case: BatchCase,
    size: TransformerSize,
) -> tuple[Tensor, list[list[tuple[Tensor, Tensor]]]]:
    """Hidden states, and keys and values by layer and request including this step's; `pasts`: those before it."""
    angles, queries = angles_of(size.head_dim), size.heads * size.head_dim
    x, news = embedded, []
    positions = torch.cat([torch.arange(at, at + n) for n, at in zip(case.fresh, case.cached, strict=True)])
    for layer, past in zip(layers, pasts, strict=True):
        qkv = normed(x) @ layer.qkv.t()
        q, k, v = qkv.split([queries, size.kv_heads * size.head_dim, size.kv_heads * size.head_dim], -1)
        q = rotated(normed(q.unflatten(1, (-1, size.head_dim)), layer.q_norm), angles[positions])
        k = rotated(normed(k.unflatten(1, (-1, size.head_dim)), layer.k_norm), angles[positions])
        v = v.unflatten(1, (-1, size.head_dim))
        row, attended, new = 0, [], []
        for fresh, (keys, values) in zip(case.fresh, past, strict=True):
            keys, values = torch.cat([keys, k[row : row + fresh]]), torch.cat([values, v[row : row + fresh]])
            new.append((keys, values))
            for number in range(fresh):
                until = len(keys) - fresh + number + 1
                seen = [t[:until].repeat_interleave(size.heads // size.kv_heads, 1) for t in (keys, values)]
                scores = torch.einsum("hd,phd->hp", q[row + number], seen[0]) * size.head_dim**-0.5
                attended.append(torch.einsum("hp,phd->hd", scores.softmax(-1), seen[1]).flatten())
            row += fresh
        news.append(new)
        x = x + torch.stack(attended) @ layer.out.t()
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
def test_layers_equal_torch(case: BatchCase, device: torch.device) -> None:
    # Triton's interpreter does not support products of bfloat16.
    compare(case, SIZE, torch.bfloat16 if device.type == "cuda" else torch.float16, device)


def compare(case: BatchCase, size: TransformerSize, dtype: torch.dtype, device: torch.device) -> None:
    """Compare a step of `GpuBackbone` with PyTorch."""
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
    expected, news = reference_layers(embedded, layers, norm, pasts, case, size)  # type: ignore[arg-type]  # pairs

    # Pages in random order, and page tables longer than needed.
    order = torch.randperm(PAGES, generator=generator).int()
    pages = torch.zeros(len(case.fresh) + case.padding, MAX_POSITIONS // PAGE + 1, dtype=torch.int32)
    taken = 0
    for number, (fresh, cached) in enumerate(zip(case.fresh, case.cached, strict=True)):
        count = -(-(fresh + cached) // PAGE)
        pages[number, :count] = order[taken : taken + count]
        taken += count
    # vLLM's layout: the heads of a position are contiguous.
    caches = [torch.full((PAGES, PAGE, size.kv_heads, 2 * size.head_dim), torch.nan) for _ in layers]
    cache_slots, positions, starts = [], [], [0]
    for number, (fresh, cached) in enumerate(zip(case.fresh, case.cached, strict=True)):
        for cache, past in zip(caches, pasts, strict=True):
            for place in range(cached):
                page = int(pages[number, place // PAGE])
                cache[page, place % PAGE] = torch.cat([past[number][0][place], past[number][1][place]], -1)
        for place in range(cached, cached + fresh):
            cache_slots.append(int(pages[number, place // PAGE]) * PAGE + place % PAGE)
            positions.append(place)
        starts.append(starts[-1] + fresh)
    count = sum(case.fresh)
    own = [cache.to(device, dtype) for cache in caches]
    rows = BatchRows(
        torch.arange(300, 300 + count + case.padding, device=device),
        torch.tensor(positions + [0] * case.padding, device=device),
        torch.tensor(cache_slots + [-1] * case.padding, device=device),
        pages.to(device),
        torch.tensor(starts + [count] * case.padding, dtype=torch.int32, device=device),
    )
    on_device = [
        LayerWeights(*(getattr(layer, name).to(device, dtype) for name in LayerWeights.__slots__)) for layer in layers
    ]
    angles = angles_of(size.head_dim).to(device)
    gpu = GpuBackbone(on_device, norm.to(device, dtype), angles, size, 64)
    padded = torch.cat([embedded, torch.full((case.padding, hidden), 7.0)]).to(device, dtype)
    states, slots, at = split_row_tags(gpu(padded, rows, [cache.permute(0, 2, 1, 3) for cache in own])[:count].cpu())
    assert torch.allclose(states.float(), expected, atol=0.05)
    assert slots.tolist() == list(range(300, 300 + count))
    assert at.tolist() == positions
    for cache, new in zip(own, news, strict=True):
        flat = cache.float().cpu().flatten(0, 1)
        row = 0
        for (keys, values), fresh in zip(new, case.fresh, strict=True):
            written = flat[cache_slots[row : row + fresh]]
            assert torch.allclose(written, torch.cat([keys[-fresh:], values[-fresh:]], -1), atol=0.05)
            row += fresh
