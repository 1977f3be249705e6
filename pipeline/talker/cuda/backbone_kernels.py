"""Triton kernels of a transformer layer between its four products: attention, gate, residual sum with norm.

Each kernel starts before its predecessor has ended (programmatic dependent launch), as soon as that one allows it, and
waits before it reads its input. The codec decoder has its own `swiglu` and `add_rmsnorm`, because codecs import nothing
of the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ...cuda.pdl import pdl_launch, pdl_wait


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Matrices are [out, in]; `qkv` and `gate_up` include the weights of the norm before them.

    `q_norm`, `k_norm`: [head_dim].
    """

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    q_norm: Tensor
    k_norm: Tensor


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Slot, position and place in the cache of each row of a batch; the rows of a request are contiguous.

    `slots`: int [n]; `positions`: int64 [n]; `cache_slots`: int64 [n], where a row's key and value are stored, below
    zero for padding rows; `pages`: int32 [requests, pages], pages of the cache by request; `starts`: int32 [requests +
    1], first row of each request.
    """

    slots: Tensor
    positions: Tensor
    cache_slots: Tensor
    pages: Tensor
    starts: Tensor


@triton.jit
def _norm_rope(line, offset, weight, angles, position, mask, eps, DIM: tl.constexpr):
    """Heads at `line + offset` after norm and rotary embedding at `position` [n], float32 [n, DIM]."""
    channels = tl.arange(0, DIM)
    half = channels % (DIM // 2)
    x = tl.load(line[:, None] + offset[:, None] + channels[None, :], mask=mask[:, None], other=0.0).to(tl.float32)
    swapped = tl.load(
        line[:, None] + offset[:, None] + ((channels + DIM // 2) % DIM)[None, :], mask=mask[:, None], other=0.0
    ).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / DIM + eps)
    own_weight = tl.load(weight + channels).to(tl.float32)
    swapped_weight = tl.load(weight + (channels + DIM // 2) % DIM).to(tl.float32)
    at = angles + position[:, None] * DIM + half[None, :]
    cosine = tl.load(at, mask=mask[:, None], other=0.0).to(tl.float32)
    sine = tl.load(at + DIM // 2, mask=mask[:, None], other=0.0).to(tl.float32)
    sine = tl.where((channels < DIM // 2)[None, :], -sine, sine)
    return scale[:, None] * (x * own_weight[None, :] * cosine + swapped * swapped_weight[None, :] * sine)


@triton.jit
def _online_softmax(queries, keys, values, known, attended, row_max, row_sum):
    """Add one tile of keys to a running softmax: `queries` [Q, DIM]; `keys`, `values` [T, DIM]; `known` bool [T]."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    scores = tl.where(known[None, :], scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    # Zero in the first tile: -inf minus -inf is not a number.
    rescale = tl.where(row_max == float("-inf"), 0.0, tl.exp(row_max - new_max))
    weights = tl.where(known[None, :], tl.exp(scores - new_max[:, None]), 0.0)
    attended = attended * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return attended, new_max, row_sum * rescale + tl.sum(weights, 1)


@triton.jit(do_not_specialize=["requests"])
def paged_attention(
    qkv, q_norm, k_norm, angles, cache, pages, starts, positions, cache_slots, out,
    requests, eps, scale, page_stride, place_stride, head_stride, pages_stride,
    SHARING: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, QUERIES: tl.constexpr,
    TILE: tl.constexpr, PROMPT_TILE: tl.constexpr, REQUESTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """Attention of one row and one key-value head over its request's positions; stores its key and value.

    `qkv`: [height, (SHARING * KV + 2 * KV) * DIM]; `q_norm`, `k_norm`: [DIM]; `angles`: [positions, DIM], cosines and
    then sines; `cache`: DIM of key and DIM of value at (page, place in the page, head) by the strides; `pages`,
    `starts`, `positions`, `cache_slots`: as of `BatchRows`; `out`: [height, SHARING * KV * DIM]. Keys of other rows of
    the same request, a prompt, are recomputed from `qkv`, so no program waits for another's cache write. QUERIES,
    PROMPT_TILE: powers of two from 16; REQUESTS: a power of two above `requests`.
    """
    pdl_launch(PDL)
    row, head = tl.program_id(0), tl.program_id(1)
    HEADS: tl.constexpr = SHARING * KV
    WIDTH: tl.constexpr = (HEADS + 2 * KV) * DIM
    channels = tl.arange(0, DIM)
    place = tl.load(cache_slots + row)
    position = tl.load(positions + row).to(tl.int32)
    number = tl.arange(0, REQUESTS)
    first_rows = tl.load(starts + number, mask=number <= requests, other=2147483647)
    request = tl.minimum(tl.sum((first_rows <= row).to(tl.int32), 0), requests) - 1
    rows_before = row - tl.max(tl.where(number == request, first_rows, 0), 0)
    if place < 0:
        rows_before = 0
        position = 0
    cached = position - rows_before
    past = tl.arange(0, TILE)
    known = past < cached
    page = tl.load(pages + request * pages_stride + past // PAGE, mask=known, other=0).to(tl.int64)
    at = cache + page * page_stride + (past % PAGE) * place_stride + head * head_stride
    # Cached keys are from earlier steps, so they can be read before the wait.
    keys = tl.load(at[:, None] + channels[None, :], mask=known[:, None], other=0.0)
    values = tl.load(at[:, None] + DIM + channels[None, :], mask=known[:, None], other=0.0)
    pdl_wait(PDL)
    shared = tl.arange(0, QUERIES)
    line = qkv + (shared * 0 + row).to(tl.int64) * WIDTH
    queries = _norm_rope(
        line, (head * SHARING + shared) * DIM, q_norm, angles, shared * 0 + position, shared < SHARING, eps, DIM
    ) * scale  # fmt: skip  # one expression
    queries = queries.to(cache.dtype.element_ty)
    attended = tl.zeros([QUERIES, DIM], tl.float32)
    row_max = tl.full([QUERIES], float("-inf"), tl.float32)
    row_sum = tl.zeros([QUERIES], tl.float32)
    for first_row in tl.range(row - rows_before, row + 1, PROMPT_TILE, num_stages=1):
        other = first_row + tl.arange(0, PROMPT_TILE)
        causal = other <= row
        lines = qkv + other.to(tl.int64) * WIDTH
        offset = other * 0 + head * DIM
        new_keys = _norm_rope(lines, offset + HEADS * DIM, k_norm, angles, position - (row - other), causal, eps, DIM)
        new_keys = new_keys.to(cache.dtype.element_ty)
        new_values = tl.load(
            lines[:, None] + (HEADS + KV + head) * DIM + channels[None, :], mask=causal[:, None], other=0.0
        ).to(cache.dtype.element_ty)
        target = cache + (place // PAGE) * page_stride + (place % PAGE) * place_stride + head * head_stride
        is_own = (other == row) & (place >= 0)
        stored = target + channels[None, :] + (other * 0)[:, None]
        tl.store(stored, new_keys, mask=is_own[:, None])
        tl.store(stored + DIM, new_values, mask=is_own[:, None])
        attended, row_max, row_sum = _online_softmax(queries, new_keys, new_values, causal, attended, row_max, row_sum)
    attended, row_max, row_sum = _online_softmax(queries, keys, values, known, attended, row_max, row_sum)
    for first_past in range(TILE, cached, TILE):
        past = first_past + tl.arange(0, TILE)
        known = past < cached
        page = tl.load(pages + request * pages_stride + past // PAGE, mask=known, other=0).to(tl.int64)
        at = cache + page * page_stride + (past % PAGE) * place_stride + head * head_stride
        keys = tl.load(at[:, None] + channels[None, :], mask=known[:, None], other=0.0)
        values = tl.load(at[:, None] + DIM + channels[None, :], mask=known[:, None], other=0.0)
        attended, row_max, row_sum = _online_softmax(queries, keys, values, known, attended, row_max, row_sum)
    attended = attended / row_sum[:, None]
    result = out + (row * HEADS + head * SHARING + shared[:, None]) * DIM + channels[None, :]
    tl.store(result, attended.to(out.dtype.element_ty), mask=(shared < SHARING)[:, None])


@triton.jit
def _rms_scale(value, width, eps):
    """1 / RMS of a row that is loaded whole, with zeros behind its end."""
    return tl.rsqrt(tl.sum(value * value, 0) / width + eps)


@triton.jit
def _begin_row(embedded, residual, hidden, SPAN: tl.constexpr):
    """A program's row of `embedded` in float32 [SPAN], which its row of `residual` becomes."""
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    mask = columns < hidden
    value = tl.load(embedded + row * hidden + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(residual + row * hidden + columns, value, mask=mask)
    return value


@triton.jit
def init_residual(embedded, x, residual, hidden, eps, SPAN: tl.constexpr, PDL: tl.constexpr):
    """Set `residual` (float32) to `embedded` [n, hidden], and `x` to its RMS norm; a program a row."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    value = _begin_row(embedded, residual, hidden, SPAN)
    value *= _rms_scale(value, hidden, eps)
    columns = tl.arange(0, SPAN)
    tl.store(x + tl.program_id(0) * hidden + columns, value.to(x.dtype.element_ty), mask=columns < hidden)


@triton.jit
def init_streamed(embedded, x, residual, sum_sq, hidden, SPAN: tl.constexpr, SUMS: tl.constexpr, PDL: tl.constexpr):
    """Set `residual` (float32) and `x` to `embedded` [n, hidden], and `sum_sq` [n, SUMS] to parts of its squares."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    value = _begin_row(embedded, residual, hidden, SPAN)
    columns, parts = tl.arange(0, SPAN), tl.arange(0, SUMS)
    tl.store(x + tl.program_id(0) * hidden + columns, value.to(x.dtype.element_ty), mask=columns < hidden)
    tl.store(sum_sq + tl.program_id(0) * SUMS + parts, tl.where(parts == 0, tl.sum(value * value, 0), 0.0))


@triton.jit
def add_rmsnorm(update, x, residual, hidden, eps, SPAN: tl.constexpr, PDL: tl.constexpr):
    """Add `update` [n, hidden] to `residual` (float32); `x` becomes the RMS norm of the sum. A program a row."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    mask = columns < hidden
    value = tl.load(residual + row * hidden + columns, mask=mask, other=0.0)
    value += tl.load(update + row * hidden + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(residual + row * hidden + columns, value, mask=mask)
    value *= _rms_scale(value, hidden, eps)
    tl.store(x + row * hidden + columns, value.to(x.dtype.element_ty), mask=mask)


@triton.jit
def swiglu(gate_up, out, width, SPAN: tl.constexpr, PDL: tl.constexpr):
    """silu(gate) * up of `gate_up` [n, 2 * width], gate first; SPAN channels of a row a program."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row = tl.program_id(0)
    columns = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    mask = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * width + columns, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=mask)


@triton.jit
def final_norm(
    residual, weight, slots, positions, out, hidden, eps, SPAN: tl.constexpr, TAGS: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip  # one argument list
    """The final norm and `append_row_tags`: `out` [n, hidden + TAGS]; a program a row."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    mask = columns < hidden
    value = tl.load(residual + row * hidden + columns, mask=mask, other=0.0)
    value *= _rms_scale(value, hidden, eps)
    value *= tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    line = out + row.to(tl.int64) * (hidden + TAGS)
    tl.store(line + columns, value.to(out.dtype.element_ty), mask=mask)
    slot = tl.load(slots + row).to(tl.int32)
    position = tl.load(positions + row).to(tl.int32)
    channel = tl.arange(0, TAGS)
    number = tl.where(channel < 2, slot, position)
    byte = tl.where(channel % 2 == 0, number >> 8, number & 255)
    byte = tl.where(channel < 4, byte, 0)
    tl.store(line + hidden + channel, byte.to(out.dtype.element_ty))
