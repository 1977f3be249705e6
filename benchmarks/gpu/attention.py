"""Times attention alone, in ms a layer: in Triton, and in CUDA C++ over each type of cache, by positions and rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize, load_checkpoint
from voxgate.pipeline.cuda.chip import chip_limits
from voxgate.pipeline.talker.cuda.attention import (
    CACHE_TYPES,
    CacheFormat,
    CudaAttention,
    PagedAttention,
    TritonAttention,
)
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.reference.predictor_weights import rotary

from .parts import MAX_POSITIONS, PAGE, graph_ms

PASTS, ROWS = (120, 500), (1, 12, 32, 64, 128, 256, 512)
LAYERS = 28
"""Launches of a graph."""
CACHE_BYTES = 8 << 30
"""Of all layers at most: more than a second-level cache holds, so that every launch reads memory."""


@torch.inference_mode()
def attention_ms(folder: Path) -> dict[str, dict[str, float]]:
    """Median time of a layer's attention, by kind and cached positions, then by rows. Of the checkpoint's size."""
    size, device = load_checkpoint(folder).talker, torch.device("cuda")
    positions = torch.arange(MAX_POSITIONS, device=device)
    angles = torch.cat([part.chunk(2, -1)[0] for part in rotary(positions, size)], -1).bfloat16()
    kinds: dict[str, tuple[PagedAttention, torch.dtype]] = {
        "Triton": (TritonAttention(size, angles, pdl=chip_limits().has_early_launch), torch.bfloat16)
    }
    for dtype in CACHE_TYPES:
        name = str(dtype).removeprefix("torch.")
        kinds[f"CUDA C++, {name}"] = CudaAttention(size, angles, CacheFormat(PAGE, dtype)), dtype
    found: dict[str, dict[str, float]] = {}
    for past in PASTS:
        for name, (attention, dtype) in kinds.items():
            found[f"{name}, {past} positions"] = {
                str(rows): round(graph_ms(launches(attention, size, rows, past, dtype, device)) / LAYERS, 4)
                for rows in ROWS
            }
    return found


def launches(
    attention: PagedAttention, size: TransformerSize, rows: int, past: int, dtype: torch.dtype, device: torch.device
) -> Callable[[], None]:
    """A function that runs `attention` LAYERS times, for `rows` requests of one row with `past` cached positions."""
    random = partial(torch.randn, device=device, dtype=torch.bfloat16)
    pages = -(-(past + 1) // PAGE)
    shape = rows * pages, PAGE, size.kv_heads, 2 * size.head_dim
    count = max(2, min(LAYERS, CACHE_BYTES // (rows * pages * PAGE * size.kv_heads * 2 * size.head_dim * 2)))
    caches = [random(shape).to(dtype).transpose(1, 2) for _ in range(count)]
    owned = torch.randperm(rows * pages, device=device).int().view(rows, pages)
    numbers = torch.arange(rows, device=device)
    starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
    places = owned[:, past // PAGE].long() * PAGE + past % PAGE
    batch = BatchRows(numbers, numbers * 0 + past, places, owned, starts)
    norm = torch.ones(size.head_dim, device=device, dtype=torch.bfloat16)
    layer = LayerWeights(norm, norm, norm, norm, norm, norm)
    qkv = random((rows, (size.heads + 2 * size.kv_heads) * size.head_dim))
    out = torch.empty(rows, size.heads * size.head_dim, device=device, dtype=torch.bfloat16)

    def run() -> None:
        for number in range(LAYERS):
            attention(qkv, layer, caches[number % count], batch, out)

    return run
