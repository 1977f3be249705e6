"""Attention of a step's rows over vLLM's paged cache: in Triton, or in CUDA C++, which is faster.

`csrc/paged_attention.cu` loads keys and values into the registers in which it multiplies them; Triton passes them
through shared memory, and multiplies the few queries of a head as if they were sixteen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import triton
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ...checkpoint.checkpoint import TransformerSize
from ...cuda.fast_paths import FastPath
from ...cuda.nvrtc import CudaKernel, KernelSource, Launch, pack_arguments
from ...cuda.self_test import RandomInputs, accelerated, is_close
from .backbone_kernels import BatchRows, LayerWeights, paged_attention
from .tiles import ATTENTION_SPLITS, attention_split, attention_tile

SOURCE = Path(__file__).parent / "csrc/paged_attention.cu"
CACHE_TYPES = (torch.bfloat16, torch.float8_e4m3fn)
HEAD_DIMS, TILE = (64, 128), 16
"""Channels of a head that the CUDA C++ kernel is written for; the pages of its cache hold a multiple of TILE."""
BLOCK_WARPS = 4
"""Warps of a block, or one head's if those are more."""
RESIDENT_WARPS, MANY_RESIDENT_WARPS = 12, 16
"""Warps of a multiprocessor, which limit the registers of each to 168 and 128. With 128 and a cache in bfloat16, whose
tiles are larger, or with several warps a head, so few were slower on an H200."""
MOST_SHARING = 8
"""Query heads of a key-value head that a matrix instruction has room for."""
PROMPT_TILE = 16
"""Rows of the same request that the Triton kernel attends to at a time."""
_REQUESTS = (16, 64, 256, 1024, 4096)
"""Numbers of requests that the Triton kernel is compiled for."""
TEST_CACHED, TEST_ROWS = (37, 0, 700), (1, 18, 3)
"""The requests of the self-test: positions in the cache, and rows of the step."""
TOLERANCE = 0.02
"""Largest relative difference of the self-test: bfloat16 rounds keys, values and weights by 0.2 % at most."""


class PagedAttention(Protocol):
    """Computes attention for all rows of a step, and stores their keys and values."""

    def __call__(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        """Fill `out`, [n, heads * head_dim].

        `qkv`: [n, (heads + 2 * kv_heads) * head_dim], before norm and rotary embedding; `cache`: [pages, kv_heads, page
        size, 2 * head_dim] with any strides, the last of them 1.
        """


class TritonAttention:
    """`PagedAttention` of any size on any GPU, over a cache in the type of the computation.

    `angles`: [positions, head_dim], cosines and then sines.
    """

    def __init__(self, size: TransformerSize, angles: Tensor, *, pdl: bool) -> None:
        self._size, self._angles, self._pdl = size, angles, pdl

    def __call__(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        size, requests = self._size, len(rows.starts) - 1
        sharing = size.heads // size.kv_heads
        tile, warps = attention_tile(len(qkv))
        paged_attention[(len(qkv), size.kv_heads)](
            qkv, layer.q_norm, layer.k_norm, self._angles, cache, rows.pages, rows.starts, rows.positions,
            rows.cache_slots, out, requests, size.norm_eps, size.head_dim**-0.5,
            cache.stride(0), cache.stride(2), cache.stride(1), rows.pages.stride(0),
            SHARING=sharing, KV=size.kv_heads, DIM=size.head_dim, PAGE=cache.shape[2],
            QUERIES=max(16, triton.next_power_of_2(sharing)), TILE=tile, PROMPT_TILE=PROMPT_TILE,
            REQUESTS=next(most for most in _REQUESTS if most > requests), PDL=self._pdl, num_warps=warps,
            launch_pdl=self._pdl,
        )  # fmt: skip  # one argument list


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """vLLM's cache: positions of a page, and the type of a number, bfloat16 or float8_e4m3fn."""

    page: int
    dtype: torch.dtype


class CudaAttention:
    """`PagedAttention` in bfloat16, of heads of 64 or 128 channels."""

    def __init__(
        self,
        size: TransformerSize,
        angles: Tensor,
        cache: CacheFormat,
        launches: Callable[[int], Launch] | None = None,
        *,
        split: int | None = None,
    ) -> None:
        """`launches`: by `split`, used instead of compiling the kernel. Raises EngineError where that fails.

        `split`: warps among which the positions of a head are divided; by default, chosen by the rows of a step.
        """
        self._size, self._angles, self._format, self._split = size, angles, cache, split

        def compiled(split: int) -> Launch:
            return CudaKernel(attention_source(size, cache, split), shared_bytes(size, split), pdl=True).launch

        used = ATTENTION_SPLITS if split is None else (split,)
        self._launches = {number: (launches or compiled)(number) for number in used}

    @staticmethod
    def unsupported(size: TransformerSize, angles: Tensor, cache: CacheFormat) -> str | None:
        """Why the kernel cannot compute a model of this size; None where it can."""
        if angles.dtype is not torch.bfloat16 or cache.dtype not in CACHE_TYPES:
            return "the model has another precision"
        fits = size.head_dim in HEAD_DIMS and size.heads // size.kv_heads <= MOST_SHARING and cache.page % TILE == 0
        return None if fits else "the model has another size"

    def __call__(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        size = self._size
        assert (cache.shape[2], cache.dtype) == (self._format.page, self._format.dtype)
        split = self._split or attention_split(len(qkv))
        heads = block_heads(size, split)
        params = pack_arguments(
            qkv, layer.q_norm, layer.k_norm, self._angles, cache.data_ptr(), rows.pages.data_ptr(), rows.starts,
            rows.positions, rows.cache_slots, out, len(rows.starts) - 1, size.norm_eps, size.head_dim**-0.5,
            cache.stride(0), cache.stride(2), cache.stride(1), rows.pages.stride(0),
        )  # fmt: skip  # one argument list
        self._launches[split](len(qkv) * size.kv_heads // heads, 32 * split * heads, params)


def attention_source(size: TransformerSize, cache: CacheFormat, split: int) -> KernelSource:
    """The kernel of `CudaAttention` where `split` warps divide the positions of a head."""
    fp8 = cache.dtype is torch.float8_e4m3fn
    resident = MANY_RESIDENT_WARPS if fp8 and split == 1 else RESIDENT_WARPS
    macros = {
        "SHARING": size.heads // size.kv_heads,
        "KV": size.kv_heads,
        "DIM": size.head_dim,
        "PAGE": cache.page,
        "FP8": int(fp8),
        "SPLIT": split,
        "WARPS": split * block_heads(size, split),
        "RESIDENT": max(1, resident // (split * block_heads(size, split))),
        "SHARED": shared_bytes(size, split),
    }
    return KernelSource(SOURCE, macros)


def block_heads(size: TransformerSize, split: int) -> int:
    """Key-value heads of a block, of all that a row has."""
    return math.gcd(size.kv_heads, max(1, BLOCK_WARPS // split))


def shared_bytes(size: TransformerSize, split: int) -> int:
    """Shared memory of a block: for each warp and query its sums, float32, their maximum and the sum of weights."""
    return split * block_heads(size, split) * (size.heads // size.kv_heads) * (size.head_dim + 2) * 4


def attention_for(size: TransformerSize, angles: Tensor, cache: CacheFormat, chip: ChipLimits) -> PagedAttention | None:
    """The fastest attention that the current GPU can have and that passes its self-test; None if there is none."""
    own = accelerated(
        FastPath.ATTENTION,
        lambda: CudaAttention(size, angles, cache),
        lambda attention: self_test(attention, size, angles, cache),
        unavailable=FastPath.ATTENTION.missing(chip) or CudaAttention.unsupported(size, angles, cache),
    )
    if own is None and cache.dtype is torch.float8_e4m3fn:
        return None
    return own or TritonAttention(size, angles, pdl=chip.has_early_launch)


def self_test(attention: PagedAttention, size: TransformerSize, angles: Tensor, cache_format: CacheFormat) -> bool:
    """Whether `attention` gives what PyTorch computes in float32, for prompts and single rows, with padding rows."""
    inputs, device, page = RandomInputs(), angles.device, cache_format.page
    dim, heads, kv = size.head_dim, size.heads, size.kv_heads
    requests = [(min(at, len(angles) - count), count) for at, count in zip(TEST_CACHED, TEST_ROWS, strict=True)]
    positions = [at + n for at, count in requests for n in range(count)]
    table, cache_slots, used = [], [], 0
    most = max(TEST_CACHED) + max(TEST_ROWS)
    for at, count in requests:
        # Every second page is another's, which is not to be read.
        pages = [2 * (used + n) for n in range(-(-(at + count) // page))]
        used += len(pages)
        table.append(pages + [0] * (-(-most // page) - len(pages)))
        cache_slots += [pages[place // page] * page + place % page for place in range(at, at + count)]
    starts = [sum(TEST_ROWS[:n]) for n in range(len(TEST_ROWS) + 1)]
    qkv = inputs.normal(len(positions) + 1, (heads + 2 * kv) * dim).bfloat16()
    layer = LayerWeights(*[inputs.normal(0)] * 4, *((1 + inputs.normal(dim) / 4).bfloat16() for _ in range(2)))
    past = inputs.normal(2 * used, page, kv, 2 * dim)
    past[1::2] = torch.nan
    cache = past.to(cache_format.dtype)
    expected, stored = reference_attention(qkv[:-1], layer, angles.cpu(), cache, table, requests, size)
    on_device = LayerWeights(*(getattr(layer, name).to(device) for name in LayerWeights.__slots__))
    rows = BatchRows(
        torch.zeros(len(positions) + 1, dtype=torch.int64, device=device),
        torch.tensor([*positions, 0], device=device),
        torch.tensor([*cache_slots, -1], device=device),
        torch.tensor([*table, table[0]], dtype=torch.int32, device=device),
        torch.tensor([*starts, starts[-1]], dtype=torch.int32, device=device),
    )
    out = torch.full((len(positions) + 1, heads * dim), torch.nan, dtype=torch.bfloat16, device=device)
    own_cache = cache.to(device, copy=True)
    attention(qkv.to(device), on_device, own_cache.transpose(1, 2), rows, out)
    own = own_cache.cpu().float().flatten(0, 1)
    untouched = torch.ones(len(own), dtype=torch.bool, device="cpu")
    untouched[cache_slots] = False
    return (
        is_close(out[:-1].cpu(), expected, TOLERANCE)
        and is_close(own[cache_slots], stored, TOLERANCE)
        and torch.equal(own[untouched].nan_to_num(), cache.float().flatten(0, 1)[untouched].nan_to_num())
    )


def reference_attention(
    qkv: Tensor,
    layer: LayerWeights,
    angles: Tensor,
    cache: Tensor,
    table: list[list[int]],
    requests: list[tuple[int, int]],
    size: TransformerSize,
) -> tuple[Tensor, Tensor]:
    """Attention in float32 on the CPU, [n, heads * head_dim], and the keys and values of the rows.

    `cache`: [pages, page size, kv_heads, 2 * head_dim]; `table`: pages by request; `requests`: positions in
    the cache and rows of each.
    """
    dim, kv = size.head_dim, size.kv_heads
    positions = [at + n for at, count in requests for n in range(count)]
    queries, keys, values = torch.split(qkv.float().view(len(qkv), -1, dim), [size.heads, kv, kv], 1)
    cosine, sine = angles.float()[positions][:, None].chunk(2, -1)

    def norm_rope(x: Tensor, weight: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + size.norm_eps) * weight.float()
        left, right = x.chunk(2, -1)
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)

    queries, keys = norm_rope(queries, layer.q_norm), norm_rope(keys, layer.k_norm).to(cache.dtype).float()
    values = values.to(cache.dtype).float()
    attended, row = [], 0
    for pages, (at, count) in zip(table, requests, strict=True):
        past_keys, past_values = cache.float()[pages].flatten(0, 1)[:at].chunk(2, -1)
        for number in range(count):
            seen = [
                torch.cat([past, new[row : row + number + 1]]).repeat_interleave(size.heads // kv, 1)
                for past, new in ((past_keys, keys), (past_values, values))
            ]
            scores = torch.einsum("hd,phd->hp", queries[row + number], seen[0]) / math.sqrt(dim)
            attended.append(torch.einsum("hp,phd->hd", scores.softmax(-1), seen[1]).flatten())
        row += count
    return torch.stack(attended), torch.cat([keys, values], -1)
