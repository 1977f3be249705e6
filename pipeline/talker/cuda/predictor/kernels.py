"""The code predictor's Triton kernels.

One layer of one pass is five of them: norm and QKV, attention, output projection, norm and gated MLP, down projection.
Each starts before its predecessor has ended (programmatic dependent launch), loads its weights, and only then waits for
its input: at few rows the step takes as long as reading the weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....cuda.pdl import pdl_launch, pdl_wait
from ..tiles import Epilogue

ADD = tl.constexpr(int(Epilogue.ADD))
SWIGLU = tl.constexpr(int(Epilogue.SWIGLU))


@triton.jit
def _prefetch_epilogue(
    residual, sum_sq, rows, columns, height, width,
    BLOCKS: tl.constexpr, SPREAD: tl.constexpr, NORM: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip  # one argument list
    """Load what the epilogue needs, before the product: sums of squares with NORM, the residual with ADD."""
    real = rows[:, None] < height
    prefetched = 0.0
    if NORM:
        block = tl.arange(0, SPREAD)
        prefetched = tl.load(
            sum_sq + rows[:, None] * BLOCKS + block[None, :], mask=real & (block < BLOCKS)[None, :], other=0.0
        )
    if EPILOGUE == ADD:
        prefetched = tl.load(
            residual + rows[:, None] * width + columns[None, :], mask=real & (columns[None, :] < width), other=0.0
        )
    return prefetched


@triton.jit
def _epilogue(
    value, up, prefetched, out, residual, sum_sq, rows, columns, height, width, inner, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, SUM_COLUMNS: tl.constexpr, NORM: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip  # one argument list
    """Scale the product, [rows, columns], by the norm of its input with NORM, and write it as EPILOGUE says.

    `up`: the product with the second half of the weights; `prefetched`: from `_prefetch_epilogue`.
    """
    at = rows[:, None] * width + columns[None, :]
    mask = (rows[:, None] < height) & (columns[None, :] < width)
    if NORM:
        scale = tl.rsqrt(tl.sum(prefetched, 1) / inner + eps)
        value = value * scale[:, None]
        up = up * scale[:, None]
    if EPILOGUE == SWIGLU:
        value = value * tl.sigmoid(value) * up
    if EPILOGUE == ADD:
        value += prefetched
        tl.store(residual + at, value, mask=mask)
        squares = tl.where(mask, value * value, 0.0)
        OWN: tl.constexpr = COLUMNS // SUM_COLUMNS
        if OWN == 1:
            square = tl.sum(squares, 1)
            tl.store(sum_sq + rows * BLOCKS + tl.program_id(0), square, mask=rows < height)
        else:
            block = tl.program_id(0) * OWN + tl.arange(0, OWN)
            tl.store(
                sum_sq + rows[:, None] * BLOCKS + block[None, :],
                tl.sum(tl.reshape(squares, [ROWS, OWN, SUM_COLUMNS]), 2),
                mask=(rows[:, None] < height) & (block[None, :] < BLOCKS),
            )
    tl.store(out + at, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def skinny_gemm(
    x, weight, out, residual, sum_sq, height, width, eps,
    INNER: tl.constexpr, SLICES: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, SPREAD: tl.constexpr, SUM_COLUMNS: tl.constexpr, NORM: tl.constexpr,
    EPILOGUE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """`x` [height, INNER] times `weight` [width, INNER], for few rows; a program computes ROWS by COLUMNS.

    With NORM, each row of `x` is RMS-normed by its squares, the sum of a row of `sum_sq` [height, BLOCKS]. With ADD the
    product is added to `residual` (float32); the sum also goes to `out`, and its squares, by block of SUM_COLUMNS
    columns, to `sum_sq`. A program loads all weights of its columns at once, in SLICES that its warps share.
    """
    pdl_launch(PDL)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, SLICES)[:, None, None] * SPAN + tl.arange(0, SPAN)[None, None, :]
    at = weight + columns[None, :, None] * INNER + inner
    mask = (columns[None, :, None] < width) & (inner < INNER)
    weights = tl.load(at, mask=mask, other=0.0)
    up_weights = weights
    if EPILOGUE == SWIGLU:
        up_weights = tl.load(at + width * INNER, mask=mask, other=0.0)
    pdl_wait(PDL)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    prefetched = _prefetch_epilogue(residual, sum_sq, rows, columns, height, width, BLOCKS, SPREAD, NORM, EPILOGUE)
    lines = tl.load(
        x + rows[None, :, None] * INNER + inner, mask=(rows[None, :, None] < height) & (inner < INNER), other=0.0
    )
    value = tl.sum(tl.dot(lines, tl.permute(weights, (0, 2, 1)), input_precision="ieee"), 0)
    up = value
    if EPILOGUE == SWIGLU:
        up = tl.sum(tl.dot(lines, tl.permute(up_weights, (0, 2, 1)), input_precision="ieee"), 0)
    _epilogue(
        value, up, prefetched, out, residual, sum_sq, rows, columns, height, width, INNER, eps, ROWS, COLUMNS,
        BLOCKS, SUM_COLUMNS, NORM, EPILOGUE,
    )  # fmt: skip  # one argument list


@triton.jit
def gemm(
    x, weight, out, residual, sum_sq, height, width, eps,
    INNER: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, SPREAD: tl.constexpr, SUM_COLUMNS: tl.constexpr, NORM: tl.constexpr,
    EPILOGUE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """As `skinny_gemm` for any number of rows: a tile of ROWS by COLUMNS a program, SPAN of the depth at a time."""
    pdl_launch(PDL)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    pdl_wait(PDL)
    prefetched = _prefetch_epilogue(residual, sum_sq, rows, columns, height, width, BLOCKS, SPREAD, NORM, EPILOGUE)
    value = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = value
    for start in range(0, INNER, SPAN):
        inner = start + tl.arange(0, SPAN)
        at = weight + columns[None, :] * INNER + inner[:, None]
        mask = (columns[None, :] < width) & (inner[:, None] < INNER)
        lines = tl.load(
            x + rows[:, None] * INNER + inner[None, :],
            mask=(rows[:, None] < height) & (inner[None, :] < INNER),
            other=0.0,
        )
        value = tl.dot(lines, tl.load(at, mask=mask, other=0.0), value, input_precision="ieee")
        if EPILOGUE == SWIGLU:
            up_weights = tl.load(at + width * INNER, mask=mask, other=0.0)
            up = tl.dot(lines, up_weights, up, input_precision="ieee")
    _epilogue(
        value, up, prefetched, out, residual, sum_sq, rows, columns, height, width, INNER, eps, ROWS, COLUMNS,
        BLOCKS, SUM_COLUMNS, NORM, EPILOGUE,
    )  # fmt: skip  # one argument list


@triton.jit
def _norm_rope(qkv, rope_cos, rope_sin, head, channels, eps, DIM: tl.constexpr):
    """Query or key of a head after norm and rotary embedding, float32 [DIM]; the factors include the norm's weights.

    The backbone's kernels have another `_norm_rope`, whose norm weights are not folded into the factors.
    """
    x = tl.load(qkv + head * DIM + channels).to(tl.float32)
    swapped = tl.load(qkv + head * DIM + (channels + DIM // 2) % DIM).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / DIM + eps)
    cosine = tl.load(rope_cos + head * DIM + channels).to(tl.float32)
    sine = tl.load(rope_sin + head * DIM + channels).to(tl.float32)
    return scale * (x * cosine + swapped * sine)


@triton.jit
def predictor_attention(
    qkv, rope_cos, rope_sin, keys, values, out, position, height, eps,
    SHARING: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, SPAN: tl.constexpr, LONGEST: tl.constexpr,
    FIRST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """Attention of one row and one key-value head at `position`, whose key and value join the cache.

    `qkv`: [height, (SHARING * KV + 2 * KV) * DIM]; `rope_cos`, `rope_sin`: as in `FoldedLayer`; `keys`, `values`:
    [rows, KV, LONGEST, DIM]; SPAN: a power of two from `position`; `out`: [height, SHARING * KV * DIM]. With FIRST, and
    a SPAN of 1, two positions are computed, 0 in the first `height` rows and 1 in the next `height` rows.
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
    if FIRST:
        line = qkv + row * WIDTH
        past_key = _norm_rope(line, rope_cos, rope_sin, HEADS + head, channels, eps, DIM).to(keys.dtype.element_ty)
        past_value = tl.load(line + ROTATED + head * DIM + channels)
        tl.store(keys + cache + channels, past_key)
        tl.store(values + cache + channels, past_value)
        for shared in tl.static_range(SHARING):
            # Position 0 attends to itself alone.
            tl.store(out + (row * HEADS + head * SHARING + shared) * DIM + channels, past_value)
        past_keys, past_values = past_key[None, :], past_value[None, :]
        row += height
    else:
        at = cache + past[:, None] * DIM + channels[None, :]
        past_keys = tl.load(keys + at, mask=known[:, None], other=0.0)
        past_values = tl.load(values + at, mask=known[:, None], other=0.0)
    rope_cos += position * ROTATED
    rope_sin += position * ROTATED
    line = qkv + row * WIDTH
    key = _norm_rope(line, rope_cos, rope_sin, HEADS + head, channels, eps, DIM).to(keys.dtype.element_ty)
    value = tl.load(line + ROTATED + head * DIM + channels)
    # Weights of all queries before the first sum of values: keys and values in float32 at the same time would take
    # twice the registers, and half as many programs would run side by side.
    own_weights = ()
    past_weights = ()
    for shared in tl.static_range(SHARING):
        query = _norm_rope(line, rope_cos, rope_sin, head * SHARING + shared, channels, eps, DIM)
        own = tl.sum(query * key.to(tl.float32), 0)
        scores = tl.where(known, tl.sum(past_keys.to(tl.float32) * query[None, :], 1), float("-inf"))
        row_max = tl.maximum(own, tl.max(scores, 0))
        own_weights += (tl.exp(own - row_max),)  # type: ignore[assignment]  # one more, as the kernel is compiled
        past_weights += (tl.exp(scores - row_max),)  # type: ignore[assignment]  # as above
    for shared in tl.static_range(SHARING):
        own, weights = own_weights[shared], past_weights[shared]  # type: ignore[var-annotated]  # as above
        attended = own * value.to(tl.float32) + tl.sum(weights[:, None] * past_values.to(tl.float32), 0)
        attended = attended / (own + tl.sum(weights, 0))
        tl.store(out + (row * HEADS + head * SHARING + shared) * DIM + channels, attended.to(out.dtype.element_ty))
    # After all loads: the compiler keeps a load behind a store, which would delay it.
    tl.store(keys + cache + position * DIM + channels, key)
    tl.store(values + cache + position * DIM + channels, value)
