"""The code predictor's kernels on a GPU, in Triton.

One pass of one layer is five of them: norm and QKV, attention, output, norm and gated MLP, MLP's end. Each begins
before the one ahead of it has ended (programmatic dependent launch), fetches its weights, and only then waits for its
input: at a few rows reading the weights is all the time there is.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...cuda.pdl import pdl_launch, pdl_wait

STORE = tl.constexpr(0)
"""Write the product."""
ADD = tl.constexpr(1)
"""Add it to what is there."""
GATED = tl.constexpr(2)
"""Write silu(product with the first half of the weights) * product with the second."""


@triton.jit
def _prefetch_epilogue(
    residual, sum_sq, rows, columns, height, width,
    BLOCKS: tl.constexpr, SPREAD: tl.constexpr, NORM: tl.constexpr, END: tl.constexpr,
):  # fmt: skip  # one argument list
    """What the end of a product will need, asked for before its beginning."""
    real = rows[:, None] < height
    before = 0.0
    if NORM:
        block = tl.arange(0, SPREAD)
        before = tl.load(
            sum_sq + rows[:, None] * BLOCKS + block[None, :], mask=real & (block < BLOCKS)[None, :], other=0.0
        )
    if END == ADD:
        before = tl.load(
            residual + rows[:, None] * width + columns[None, :], mask=real & (columns[None, :] < width), other=0.0
        )
    return before


@triton.jit
def _epilogue(
    value, gate_up, before, out, residual, sum_sq, rows, columns, height, width, inner, eps,
    BLOCKS: tl.constexpr, NORM: tl.constexpr, END: tl.constexpr,
):  # fmt: skip  # one argument list
    """Scale the product, [rows, columns], by its input's norm where asked, and leave it where END says.

    `before`: what `_prefetch_epilogue` has fetched.
    """
    at = rows[:, None] * width + columns[None, :]
    inside = (rows[:, None] < height) & (columns[None, :] < width)
    if NORM:
        scale = tl.rsqrt(tl.sum(before, 1) / inner + eps)
        value = value * scale[:, None]
        gate_up = gate_up * scale[:, None]
    if END == GATED:
        value = value * tl.sigmoid(value) * gate_up
    if END == ADD:
        value += before
        tl.store(residual + at, value, mask=inside)
        square = tl.sum(tl.where(inside, value * value, 0.0), 1)
        tl.store(sum_sq + rows * BLOCKS + tl.program_id(0), square, mask=rows < height)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def skinny_gemm(
    x, weight, out, residual, sum_sq, height, width, eps,
    INNER: tl.constexpr, SLICES: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, SPREAD: tl.constexpr, NORM: tl.constexpr, END: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """`x` [height, INNER] times `weight` [width, INNER], for up to ROWS rows.

    With NORM, `sum_sq` [height, BLOCKS] are summed to the square of each row of `x`, which is normed by it. With ADD
    the product is added to `residual` (float32), whose new value also goes to `out`, and its sum_sq, by block of
    columns, to `sum_sq`. A program takes COLUMNS columns of the result and their whole weights at once, cut into SLICES
    so that its warps share them.
    """
    pdl_launch(PDL)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, SLICES)[:, None, None] * SPAN + tl.arange(0, SPAN)[None, None, :]
    at = weight + columns[None, :, None] * INNER + inner
    there = (columns[None, :, None] < width) & (inner < INNER)
    weights = tl.load(at, mask=there, other=0.0)
    ups = weights
    if END == GATED:
        ups = tl.load(at + width * INNER, mask=there, other=0.0)
    pdl_wait(PDL)
    rows = tl.arange(0, ROWS)
    before = _prefetch_epilogue(residual, sum_sq, rows, columns, height, width, BLOCKS, SPREAD, NORM, END)
    lines = tl.load(
        x + rows[None, :, None] * INNER + inner, mask=(rows[None, :, None] < height) & (inner < INNER), other=0.0
    )
    value = tl.sum(tl.dot(lines, tl.permute(weights, (0, 2, 1)), input_precision="ieee"), 0)
    gate_up = value
    if END == GATED:
        gate_up = tl.sum(tl.dot(lines, tl.permute(ups, (0, 2, 1)), input_precision="ieee"), 0)
    _epilogue(
        value, gate_up, before, out, residual, sum_sq, rows, columns, height, width, INNER, eps, BLOCKS, NORM, END
    )  # fmt: skip  # one argument list


@triton.jit
def gemm(
    x, weight, out, residual, sum_sq, height, width, eps,
    INNER: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, SPREAD: tl.constexpr, NORM: tl.constexpr, END: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """As `skinny_gemm`, for any number of rows: a tile of ROWS by COLUMNS a program, SPAN of the inner width at a time."""
    pdl_launch(PDL)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    pdl_wait(PDL)
    before = _prefetch_epilogue(residual, sum_sq, rows, columns, height, width, BLOCKS, SPREAD, NORM, END)
    value = tl.zeros([ROWS, COLUMNS], tl.float32)
    gate_up = value
    for start in range(0, INNER, SPAN):
        inner = start + tl.arange(0, SPAN)
        at = weight + columns[None, :] * INNER + inner[:, None]
        there = (columns[None, :] < width) & (inner[:, None] < INNER)
        lines = tl.load(
            x + rows[:, None] * INNER + inner[None, :],
            mask=(rows[:, None] < height) & (inner[None, :] < INNER),
            other=0.0,
        )
        value = tl.dot(lines, tl.load(at, mask=there, other=0.0), value, input_precision="ieee")
        if END == GATED:
            ups = tl.load(at + width * INNER, mask=there, other=0.0)
            gate_up = tl.dot(lines, ups, gate_up, input_precision="ieee")
    _epilogue(
        value, gate_up, before, out, residual, sum_sq, rows, columns, height, width, INNER, eps, BLOCKS, NORM, END
    )  # fmt: skip  # one argument list


@triton.jit
def _norm_rope(qkv, rope_cos, rope_sin, head, channels, eps, DIM: tl.constexpr):
    """A head's query or key behind its norm and rotary embedding, float32 [DIM]."""
    plain = tl.load(qkv + head * DIM + channels).to(tl.float32)
    swapped = tl.load(qkv + head * DIM + (channels + DIM // 2) % DIM).to(tl.float32)
    scale = tl.rsqrt(tl.sum(plain * plain, 0) / DIM + eps)
    turned = tl.load(rope_cos + head * DIM + channels).to(tl.float32)
    crossed = tl.load(rope_sin + head * DIM + channels).to(tl.float32)
    return scale * (plain * turned + swapped * crossed)


@triton.jit
def predictor_attention(
    qkv, rope_cos, rope_sin, keys, values, out, position, height, eps,
    SHARING: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, SPAN: tl.constexpr, LONGEST: tl.constexpr,
    FIRST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """Attention of one row and one key-value head at `position`, whose key and value join the cache.

    `qkv`: [height, (SHARING * KV + 2 * KV) * DIM]; `rope_cos`, `rope_sin`: as in `FoldedLayer`; `keys`, `values`:
    [rows, KV, LONGEST, DIM], SPAN the power of two above LONGEST; `out`: [height, SHARING * KV * DIM]. With FIRST two
    positions are made at once, 0 in the first `height` rows and 1 in as many behind them.
    """
    pdl_launch(PDL)
    row, head = tl.program_id(0), tl.program_id(1)
    channels = tl.arange(0, DIM)
    HEADS: tl.constexpr = SHARING * KV
    WIDTH: tl.constexpr = (HEADS + 2 * KV) * DIM
    ROTATED: tl.constexpr = (HEADS + KV) * DIM
    pdl_wait(PDL)
    cache = (row * KV + head) * LONGEST * DIM
    past = tl.arange(0, SPAN)
    known = past < position
    if not FIRST:
        # Before anything is written: a load behind a store would have to wait for it.
        at = cache + past[:, None] * DIM + channels[None, :]
        past_keys = tl.load(keys + at, mask=known[:, None], other=0.0).to(tl.float32)
        past_values = tl.load(values + at, mask=known[:, None], other=0.0).to(tl.float32)
    earlier_key = tl.zeros([DIM], tl.float32)
    earlier_value = tl.zeros([DIM], tl.float32)
    if FIRST:
        line = qkv + row * WIDTH
        earlier_key = _norm_rope(line, rope_cos, rope_sin, HEADS + head, channels, eps, DIM).to(keys.dtype.element_ty)
        tl.store(keys + cache + channels, earlier_key)
        earlier_value = tl.load(line + ROTATED + head * DIM + channels)
        tl.store(values + cache + channels, earlier_value)
        for shared in tl.static_range(SHARING):
            # It sees nothing but itself.
            tl.store(out + (row * HEADS + head * SHARING + shared) * DIM + channels, earlier_value)
        earlier_key = earlier_key.to(tl.float32)
        earlier_value = earlier_value.to(tl.float32)
        row += height
        position = 1
    rope_cos += position * ROTATED
    rope_sin += position * ROTATED
    line = qkv + row * WIDTH
    key = _norm_rope(line, rope_cos, rope_sin, HEADS + head, channels, eps, DIM).to(keys.dtype.element_ty)
    tl.store(keys + cache + position * DIM + channels, key)
    value = tl.load(line + ROTATED + head * DIM + channels)
    tl.store(values + cache + position * DIM + channels, value)
    key = key.to(tl.float32)
    value = value.to(tl.float32)
    for shared in tl.static_range(SHARING):
        query = _norm_rope(line, rope_cos, rope_sin, head * SHARING + shared, channels, eps, DIM)
        own = tl.sum(query * key, 0)
        if FIRST:
            other = tl.sum(query * earlier_key, 0)
            most = tl.maximum(own, other)
            own = tl.exp(own - most)
            other = tl.exp(other - most)
            mixed = (own * value + other * earlier_value) / (own + other)
        else:
            scores = tl.where(known, tl.sum(past_keys * query[None, :], 1), float("-inf"))
            most = tl.maximum(own, tl.max(scores, 0))
            own = tl.exp(own - most)
            weights = tl.exp(scores - most)
            mixed = own * value + tl.sum(weights[:, None] * past_values, 0)
            mixed = mixed / (own + tl.sum(weights, 0))
        tl.store(out + (row * HEADS + head * SHARING + shared) * DIM + channels, mixed.to(out.dtype.element_ty))
