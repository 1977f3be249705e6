"""What the kernels of the talker's layers are given: weights, and whose rows are in the batch."""
# TODO-DOC What a transformer layer on a GPU does between its four products, in Triton: attention, gate, and sum with
# TODO-DOC norm. Each begins before the kernel ahead of it has ended (programmatic dependent launch), where that one
# TODO-DOC lets it, and only then waits for its input.

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ...cuda.pdl import pdl_launch, pdl_wait


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Matrices are [out, in]; `qkv` and `gate_up` carry the norm that precedes them. `q_norm`, `k_norm`: [head_dim]."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    q_norm: Tensor
    k_norm: Tensor


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Whose the rows of a batch are, and where.

    `slots`: int [n]; `positions`, `places`: int64 [n], `places` where their key and value go, below zero for nobody's;
    `pages`: int32 [requests, pages], where a request's positions lie in the cache; `starts`: int32 [requests + 1],
    where its rows begin.
    """

    slots: Tensor
    positions: Tensor
    places: Tensor
    pages: Tensor
    starts: Tensor


@triton.jit
def _norm_rope(line, offset, weight, angles, position, mask, eps, DIM: tl.constexpr):
    """Heads behind their norm and rotary embedding, float32 [n, DIM]: those at `line + offset`, at `position` [n]."""
    channels = tl.arange(0, DIM)
    half = channels % (DIM // 2)
    plain = tl.load(line[:, None] + offset[:, None] + channels[None, :], mask=mask[:, None], other=0.0).to(tl.float32)
    swapped = tl.load(
        line[:, None] + offset[:, None] + ((channels + DIM // 2) % DIM)[None, :], mask=mask[:, None], other=0.0
    ).to(tl.float32)
    scale = tl.rsqrt(tl.sum(plain * plain, 1) / DIM + eps)
    own = tl.load(weight + channels).to(tl.float32)
    other = tl.load(weight + (channels + DIM // 2) % DIM).to(tl.float32)
    at = angles + position[:, None] * DIM + half[None, :]
    cosine = tl.load(at, mask=mask[:, None], other=0.0).to(tl.float32)
    sine = tl.load(at + DIM // 2, mask=mask[:, None], other=0.0).to(tl.float32)
    sine = tl.where((channels < DIM // 2)[None, :], -sine, sine)
    return scale[:, None] * (plain * own[None, :] * cosine + swapped * other[None, :] * sine)


@triton.jit
def _online_softmax(queries, keys, values, known, mixed, most, total):
    """One tile of keys more: `queries` [Q, DIM], `keys`, `values` [T, DIM]; the running sums of a softmax."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    scores = tl.where(known[None, :], scores, float("-inf"))
    new_most = tl.maximum(most, tl.max(scores, 1))
    # Of a row that has seen nothing yet, nothing is left.
    fading = tl.where(most == float("-inf"), 0.0, tl.exp(most - new_most))
    weights = tl.where(known[None, :], tl.exp(scores - new_most[:, None]), 0.0)
    mixed = mixed * fading[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return mixed, new_most, total * fading + tl.sum(weights, 1)


@triton.jit(do_not_specialize=["requests"])
def paged_attention(
    qkv, q_norm, k_norm, angles, cache, pages, starts, positions, places, out,
    requests, eps, scale, page_stride, place_stride, head_stride, pages_line,
    SHARING: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, QUERIES: tl.constexpr,
    TILE: tl.constexpr, TOGETHER: tl.constexpr, REQUESTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """Attention of one row and one key-value head over its request's pages, where its key and value are put.

    `qkv`: [height, (SHARING * KV + 2 * KV) * DIM]; `q_norm`, `k_norm`: [DIM]; `angles`: [positions, DIM], cosines and
    sines; `cache`: keys and values behind one another, DIM each, at (page, place in it, head) by the strides; `pages`:
    int32 by request and page; `starts`: int32 [requests + 1], where its rows begin; `positions`, `places`: int64
    [height], `places` where a row's key goes, below zero for rows of nobody's; `out`: [height, SHARING * KV * DIM].
    Rows of the same request, a prompt's, see one another's keys as they are in `qkv`, so nobody waits for the cache.
    QUERIES, TOGETHER: powers of two from 16; REQUESTS: above `requests`.
    """
    pdl_launch(PDL)
    row, head = tl.program_id(0), tl.program_id(1)
    HEADS: tl.constexpr = SHARING * KV
    WIDTH: tl.constexpr = (HEADS + 2 * KV) * DIM
    channels = tl.arange(0, DIM)
    place = tl.load(places + row)
    position = tl.load(positions + row).to(tl.int32)
    number = tl.arange(0, REQUESTS)
    begins = tl.load(starts + number, mask=number <= requests, other=2147483647)
    request = tl.minimum(tl.sum((begins <= row).to(tl.int32), 0), requests) - 1
    ahead = row - tl.max(tl.where(number == request, begins, 0), 0)
    if place < 0:
        ahead = 0
        position = 0
    cached = position - ahead
    past = tl.arange(0, TILE)
    known = past < cached
    page = tl.load(pages + request * pages_line + past // PAGE, mask=known, other=0).to(tl.int64)
    at = cache + page * page_stride + (past % PAGE) * place_stride + head * head_stride
    # Written by earlier steps, so there is nothing to wait for.
    keys = tl.load(at[:, None] + channels[None, :], mask=known[:, None], other=0.0)
    values = tl.load(at[:, None] + DIM + channels[None, :], mask=known[:, None], other=0.0)
    pdl_wait(PDL)
    shared = tl.arange(0, QUERIES)
    line = qkv + (shared * 0 + row).to(tl.int64) * WIDTH
    queries = _norm_rope(
        line, (head * SHARING + shared) * DIM, q_norm, angles, shared * 0 + position, shared < SHARING, eps, DIM
    ) * scale  # fmt: skip  # one expression
    queries = queries.to(cache.dtype.element_ty)
    mixed = tl.zeros([QUERIES, DIM], tl.float32)
    most = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    for begin_at in tl.range(row - ahead, row + 1, TOGETHER, num_stages=1):
        other = begin_at + tl.arange(0, TOGETHER)
        before = other <= row
        lines = qkv + other.to(tl.int64) * WIDTH
        offset = other * 0 + head * DIM
        near = _norm_rope(lines, offset + HEADS * DIM, k_norm, angles, position - (row - other), before, eps, DIM)
        near = near.to(cache.dtype.element_ty)
        near_values = tl.load(
            lines[:, None] + (HEADS + KV + head) * DIM + channels[None, :], mask=before[:, None], other=0.0
        ).to(cache.dtype.element_ty)
        target = cache + (place // PAGE) * page_stride + (place % PAGE) * place_stride + head * head_stride
        mine = (other == row) & (place >= 0)
        keep = target + channels[None, :] + (other * 0)[:, None]
        tl.store(keep, near, mask=mine[:, None])
        tl.store(keep + DIM, near_values, mask=mine[:, None])
        mixed, most, total = _online_softmax(queries, near, near_values, before, mixed, most, total)
    mixed, most, total = _online_softmax(queries, keys, values, known, mixed, most, total)
    for begin_at in range(TILE, cached, TILE):
        past = begin_at + tl.arange(0, TILE)
        known = past < cached
        page = tl.load(pages + request * pages_line + past // PAGE, mask=known, other=0).to(tl.int64)
        at = cache + page * page_stride + (past % PAGE) * place_stride + head * head_stride
        keys = tl.load(at[:, None] + channels[None, :], mask=known[:, None], other=0.0)
        values = tl.load(at[:, None] + DIM + channels[None, :], mask=known[:, None], other=0.0)
        mixed, most, total = _online_softmax(queries, keys, values, known, mixed, most, total)
    mixed = mixed / total[:, None]
    result = out + (row * HEADS + head * SHARING + shared[:, None]) * DIM + channels[None, :]
    tl.store(result, mixed.to(out.dtype.element_ty), mask=(shared < SHARING)[:, None])


@triton.jit
def init_residual(embedded, x, residual, hidden, eps, SPAN: tl.constexpr, PDL: tl.constexpr):
    """Begin the residual stream of a row, `residual` (float32), with `embedded` [n, hidden]; `x` is it, normed."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    inside = columns < hidden
    value = tl.load(embedded + row * hidden + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row * hidden + columns, value, mask=inside)
    value *= tl.rsqrt(tl.sum(value * value, 0) / hidden + eps)
    tl.store(x + row * hidden + columns, value.to(x.dtype.element_ty), mask=inside)


@triton.jit
def init_streamed_residual(
    embedded, x, residual, sum_sq, done, hidden, counts,
    SPAN: tl.constexpr, SUMS: tl.constexpr, COUNTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """Begin the residual stream as `out_mlp_qkv` has it: `x` is `residual`, `sum_sq` [n, SUMS] its sum_sq, `done` zero."""
    # In this order: the first attention looks at positions, pages and what they hold before it has waited for anybody.
    pdl_wait(PDL)
    pdl_launch(PDL)
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    inside = columns < hidden
    given = tl.load(embedded + row * hidden + columns, mask=inside, other=0.0)
    value = given.to(tl.float32)
    tl.store(residual + row * hidden + columns, value, mask=inside)
    tl.store(x + row * hidden + columns, given.to(x.dtype.element_ty), mask=inside)
    part, count = tl.arange(0, SUMS), tl.arange(0, COUNTS)
    tl.store(sum_sq + row * SUMS + part, tl.where(part == 0, tl.sum(value * value, 0), 0.0))
    tl.store(done + count, count * 0, mask=(count < counts) & (row == 0))


@triton.jit
def add_rmsnorm(added, x, residual, hidden, eps, SPAN: tl.constexpr, PDL: tl.constexpr):
    """Add `added` [n, hidden] to the residual stream `residual` (float32); `x` becomes its new value, normed."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    inside = columns < hidden
    value = tl.load(residual + row * hidden + columns, mask=inside, other=0.0)
    value += tl.load(added + row * hidden + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row * hidden + columns, value, mask=inside)
    value *= tl.rsqrt(tl.sum(value * value, 0) / hidden + eps)
    tl.store(x + row * hidden + columns, value.to(x.dtype.element_ty), mask=inside)


@triton.jit
def swiglu(both, out, width, SPAN: tl.constexpr, PDL: tl.constexpr):
    """silu of the first half of `both` [n, 2 * width] times the second."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row = tl.program_id(0)
    columns = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    inside = columns < width
    gate = tl.load(both + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * width + width + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + columns, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def final_norm(
    residual, weight, slots, positions, out, hidden, eps, SPAN: tl.constexpr, NAMES: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip  # one argument list
    """The last norm, and `append_row_tags`: `out` [n, hidden + NAMES]."""
    pdl_launch(PDL)
    pdl_wait(PDL)
    row, columns = tl.program_id(0), tl.arange(0, SPAN)
    inside = columns < hidden
    value = tl.load(residual + row * hidden + columns, mask=inside, other=0.0)
    value *= tl.rsqrt(tl.sum(value * value, 0) / hidden + eps)
    value *= tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    line = out + row.to(tl.int64) * (hidden + NAMES)
    tl.store(line + columns, value.to(out.dtype.element_ty), mask=inside)
    slot = tl.load(slots + row).to(tl.int32)
    position = tl.load(positions + row).to(tl.int32)
    name = tl.arange(0, NAMES)
    of = tl.where(name < 2, slot, position)
    byte = tl.where(name % 2 == 0, of >> 8, of & 255)
    byte = tl.where(name < 4, byte, 0)
    tl.store(line + hidden + name, byte.to(out.dtype.element_ty))
