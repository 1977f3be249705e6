"""Sampling in Triton: the result of `Candidates.draw` by searching three thresholds instead of sorting.

In descending order the candidates are the ids above a threshold. Top-k, top-p and the inversion of a uniform number
each ask for the threshold above which the candidates have a given weight. Logits are mapped to integers of the same
order, and the threshold is found by interval search. Ids of equal logits count as one candidate.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...cuda.pdl import pdl_launch, pdl_wait

WARPS = 4
"""Warps of a program that draws one row."""


@triton.jit
def _sortable_bits(x):
    """An int32 for each float32, in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _add6(a, b, c, d, e, f, u, v, w, x, y, z):
    return a + u, b + v, c + w, d + x, e + y, f + z


@triton.jit
def _threshold(keys, weights, lowest, highest, wanted, STRICT: tl.constexpr):
    """The highest key such that `weights` of keys from it on sum to at least `wanted` (to more, if STRICT).

    `lowest` where the sum of all is too small; `highest` must be above every key. Each round tests three keys, which
    takes hardly longer than one, and the search ends when one candidate is left.
    """
    low, high = lowest.to(tl.int64), highest.to(tl.int64)
    from_low = tl.sum((keys >= lowest).to(tl.float32), 0)
    from_high = 0.0
    while (from_low - from_high > 1.0) & (high - low > 1):
        part = tl.maximum((high - low) // 4, 1)
        first, second, third = low + part, tl.minimum(low + 2 * part, high), tl.minimum(low + 3 * part, high)
        one, two, three = keys >= first.to(tl.int32), keys >= second.to(tl.int32), keys >= third.to(tl.int32)
        a, b, c, n_one, n_two, n_three = tl.reduce(
            (
                tl.where(one, weights, 0.0), tl.where(two, weights, 0.0), tl.where(three, weights, 0.0),
                one.to(tl.float32), two.to(tl.float32), three.to(tl.float32),
            ), 0, _add6,
        )  # fmt: skip  # one argument list
        if STRICT:
            at_one, at_two, at_three = a > wanted, b > wanted, c > wanted
        else:
            at_one, at_two, at_three = a >= wanted, b >= wanted, c >= wanted
        from_high = tl.where(at_three, from_high, tl.where(at_two, n_three, tl.where(at_one, n_two, n_one)))
        from_low = tl.where(at_three, n_three, tl.where(at_two, n_two, tl.where(at_one, n_one, from_low)))
        high = tl.where(at_three, high, tl.where(at_two, third, tl.where(at_one, second, first)))
        low = tl.where(at_three, third, tl.where(at_two, second, tl.where(at_one, first, low)))
    # At most one distinct key is left between the bounds.
    return tl.max(tl.where(keys < high.to(tl.int32), keys, lowest), 0)


@triton.jit
def draw(logits, width, inverse_temperature, top_k, top_p, noise, SPAN: tl.constexpr):
    """The id drawn from `logits`, float32 [SPAN], of which the first `width` are real."""
    ids = tl.arange(0, SPAN)
    # Ids past the end get the lowest key, so that they do not count as candidates.
    keys = _sortable_bits(tl.where(ids < width, logits, float("-inf")))
    best = tl.max(keys, 0)
    lowest = tl.min(keys, 0)
    above = best.to(tl.int64) + 1
    if top_k < width:
        lowest = _threshold(keys, tl.where(ids < width, 1.0, 0.0), lowest, above, top_k.to(tl.float32), False)
    logit_max = tl.max(tl.where(ids < width, logits, float("-inf")), 0)
    mass = tl.where((keys >= lowest) & (ids < width), tl.exp((logits - logit_max) * inverse_temperature), 0.0)
    total = tl.sum(mass, 0)
    if top_p < 1.0:
        lowest = _threshold(keys, mass, lowest, above, tl.maximum(top_p * total, 1e-30), False)
        mass = tl.where(keys >= lowest, mass, 0.0)
        total = tl.sum(mass, 0)
    chosen = _threshold(keys, mass, lowest, above, noise * total, True)
    return tl.min(tl.where(keys == chosen, ids, width - 1), 0)


@triton.jit
def draw_rows(
    logits, ids, inverse_temperature, top_k, top_p, noise, noise_stride, width, SPAN: tl.constexpr
):  # fmt: skip  # one argument list
    """Draw one id for each row of `logits`, float32 [n, width], to `ids`, int64 [n]; a program a row."""
    row = tl.program_id(0)
    columns = tl.arange(0, SPAN)
    line = tl.load(logits + row * width + columns, mask=columns < width, other=float("-inf"))
    chosen = draw(
        line, width, tl.load(inverse_temperature + row), tl.load(top_k + row), tl.load(top_p + row),
        tl.load(noise + row * noise_stride), SPAN,
    )  # fmt: skip  # one argument list
    tl.store(ids + row, chosen.to(tl.int64))


@triton.jit
def draw_code(
    logits, codes, inputs, x, residual, sum_sq, inverse_temperature, top_k, top_p, noise, group, groups, width, hidden,
    SPAN: tl.constexpr, LINE: tl.constexpr, BLOCKS: tl.constexpr, SPREAD: tl.constexpr, LAST: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip  # one argument list
    """Draw a row's code of `group` and, unless LAST, start the next pass with the code's embedding.

    `logits`: float32 [n, width]; `codes`, `noise`: [n, groups]; `inputs`: [width, hidden]. The embedding is written to
    `x` [n, hidden] and to `residual` (float32), its sum of squares to `sum_sq` [n, BLOCKS].
    """
    pdl_launch(PDL)
    row = tl.program_id(0)
    columns = tl.arange(0, SPAN)
    at = row * groups + group
    row_inv_temperature = tl.load(inverse_temperature + row)
    row_top_k, row_top_p = tl.load(top_k + row), tl.load(top_p + row)
    uniform = tl.load(noise + at)
    pdl_wait(PDL)
    line = tl.load(logits + row * width + columns, mask=columns < width, other=float("-inf"))
    chosen = draw(line, width, row_inv_temperature, row_top_k, row_top_p, uniform, SPAN)
    tl.store(codes + at, chosen.to(tl.int64))
    if not LAST:
        channels = tl.arange(0, LINE)
        entry = tl.load(inputs + chosen * hidden + channels, mask=channels < hidden, other=0.0)
        tl.store(x + row * hidden + channels, entry, mask=channels < hidden)
        entry_f32 = entry.to(tl.float32)
        tl.store(residual + row * hidden + channels, entry_f32, mask=channels < hidden)
        block = tl.arange(0, SPREAD)
        square = tl.where(block == 0, tl.sum(entry_f32 * entry_f32, 0), 0.0)
        tl.store(sum_sq + row * BLOCKS + block, square, mask=block < BLOCKS)


@triton.jit
def _splitmix64(x):
    x = x + -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def uniform_noise(seed, counter):
    """A uniform number in [0, 1), a multiple of 2^-24, for each counter: the hash of `reference.sampling.uniform`."""
    bits = (_splitmix64(_splitmix64(seed) + counter) >> 40) & 0xFFFFFF
    return bits.to(tl.float32) * 5.960464477539063e-08


@triton.jit
def uniform_rows(seed, frame, noise, groups, GROUPS: tl.constexpr):
    """`reference.sampling.uniform`, a program a row; GROUPS: the power of two from `groups`."""
    row = tl.program_id(0)
    group = tl.arange(0, GROUPS)
    counter = tl.load(frame + row) * groups + group
    tl.store(noise + row * groups + group, uniform_noise(tl.load(seed + row), counter), mask=group < groups)
