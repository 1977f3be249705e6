"""Drawing codes on a GPU: what `Candidates.draw` does by sorting, by looking for three thresholds instead.

Candidates in descending order are those above a threshold, so top-k, top-p and the inversion of a uniform number are
each one question: down to which logit do candidates have to be taken until they weigh so much? Logits become whole
numbers of the same order, and the answer is found by halving. Candidates of the same logit count as one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import cuda

WARPS = 4


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
    """The highest key from which on, upwards, `weights` sum to at least `wanted` (to more, if STRICT).

    `lowest` where even all of them do not; `highest` must lie above every key. Each round looks at three keys at
    once, which takes hardly longer than one, and the search ends when a single candidate is left.
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
    # Whatever is left between the two has one key.
    return tl.max(tl.where(keys < high.to(tl.int32), keys, lowest), 0)


@triton.jit
def draw(logits, width, inverse_temperature, limit, top_p, noise, SPAN: tl.constexpr):
    """One id; `logits`: float32 [SPAN], of which `width` are real."""
    ids = tl.arange(0, SPAN)
    # What cannot be drawn must not count among the candidates either.
    keys = _sortable_bits(tl.where(ids < width, logits, float("-inf")))
    best = tl.max(keys, 0)
    lowest = tl.min(keys, 0)
    above = best.to(tl.int64) + 1
    if limit < width:
        lowest = _threshold(keys, tl.where(ids < width, 1.0, 0.0), lowest, above, limit.to(tl.float32), False)
    top = tl.max(tl.where(ids < width, logits, float("-inf")), 0)
    mass = tl.where((keys >= lowest) & (ids < width), tl.exp((logits - top) * inverse_temperature), 0.0)
    total = tl.sum(mass, 0)
    if top_p < 1.0:
        lowest = _threshold(keys, mass, lowest, above, tl.maximum(top_p * total, 1e-30), False)
        mass = tl.where(keys >= lowest, mass, 0.0)
        total = tl.sum(mass, 0)
    chosen = _threshold(keys, mass, lowest, above, noise * total, True)
    return tl.min(tl.where(keys == chosen, ids, width - 1), 0)


@triton.jit
def _draw_rows(
    logits, ids, inverse_temperature, limit, top_p, noise, noise_line, width, SPAN: tl.constexpr
):  # fmt: skip  # one argument list
    row = tl.program_id(0)
    columns = tl.arange(0, SPAN)
    line = tl.load(logits + row * width + columns, mask=columns < width, other=float("-inf"))
    chosen = draw(
        line, width, tl.load(inverse_temperature + row), tl.load(limit + row), tl.load(top_p + row),
        tl.load(noise + row * noise_line), SPAN,
    )  # fmt: skip  # one argument list
    tl.store(ids + row, chosen.to(tl.int64))


@triton.jit
def draw_code(
    logits, codes, inputs, x, residual, sum_sq, inverse_temperature, limit, top_p, noise, group, groups, width, hidden,
    SPAN: tl.constexpr, LINE: tl.constexpr, BLOCKS: tl.constexpr, SPREAD: tl.constexpr, LAST: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip  # one argument list
    """Draw the code of `group` for a row, and begin the next pass with its embedding.

    `logits`: float32 [n, width]; `codes`, `noise`: [n, groups]; `inputs`: [width, hidden]. Its entry goes to `x`
    [n, hidden], to `residual` (float32), and its square to `sum_sq` [n, BLOCKS].
    """
    if EARLY:
        cuda.gdc_launch_dependents()
    row = tl.program_id(0)
    columns = tl.arange(0, SPAN)
    at = row * groups + group
    inv_temperature, most, nucleus = tl.load(inverse_temperature + row), tl.load(limit + row), tl.load(top_p + row)
    uniform = tl.load(noise + at)
    if EARLY:
        cuda.gdc_wait()
    line = tl.load(logits + row * width + columns, mask=columns < width, other=float("-inf"))
    chosen = draw(line, width, inv_temperature, most, nucleus, uniform, SPAN)
    tl.store(codes + at, chosen.to(tl.int64))
    if not LAST:
        channels = tl.arange(0, LINE)
        entry = tl.load(inputs + chosen * hidden + channels, mask=channels < hidden, other=0.0)
        tl.store(x + row * hidden + channels, entry, mask=channels < hidden)
        wide = entry.to(tl.float32)
        tl.store(residual + row * hidden + channels, wide, mask=channels < hidden)
        block = tl.arange(0, SPREAD)
        square = tl.where(block == 0, tl.sum(wide * wide, 0), 0.0)
        tl.store(sum_sq + row * BLOCKS + block, square, mask=block < BLOCKS)


def draw_rows(logits: Tensor, inverse_temperature: Tensor, limit: Tensor, top_p: Tensor, noise: Tensor) -> Tensor:
    """One id a row, int64 [n]: `Candidates.draw` for float32 [n, vocab], with a limit and a top-p in every row."""
    rows, width = logits.shape
    ids = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _draw_rows[(rows,)](
        logits.contiguous(), ids, inverse_temperature, limit, top_p, noise, noise.stride(0), width,
        SPAN=triton.next_power_of_2(width), num_warps=WARPS,
    )  # fmt: skip  # one argument list
    return ids


@triton.jit
def _splitmix64(x):
    x = x + -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def noise_of(seed, counter):
    """A uniform number in [0, 1), a multiple of 2^-24, for each counter: the hash of `sampling.uniform`."""
    bits = (_splitmix64(_splitmix64(seed) + counter) >> 40) & 0xFFFFFF
    return bits.to(tl.float32) * 5.960464477539063e-08


@triton.jit
def _uniform(seed, frame, noise, groups, GROUPS: tl.constexpr):
    row = tl.program_id(0)
    group = tl.arange(0, GROUPS)
    counter = tl.load(frame + row) * groups + group
    tl.store(noise + row * groups + group, noise_of(tl.load(seed + row), counter), mask=group < groups)


def uniform_rows(seed: Tensor, frame: Tensor, groups: int) -> Tensor:
    """`sampling.uniform` in one kernel."""
    noise = torch.empty(len(seed), groups, dtype=torch.float32, device=seed.device)
    _uniform[(len(seed),)](
        seed.contiguous(), frame.contiguous(), noise, groups, GROUPS=triton.next_power_of_2(groups), num_warps=1
    )
    return noise
