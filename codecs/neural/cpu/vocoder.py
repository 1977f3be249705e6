"""The vocoder's layers, compiled. An activation is [lines, channels]; line step * rows + row is a step of a stream.

With time outermost, the inputs of tap k of a convolution, for all steps and all rows, are consecutive lines that begin
k * dilation * rows lines later. A convolution is then a product for any dilation and any number of streams, without
gathering patches and without mixing rows. Lines are computed in blocks that stay in the processor's cache.

`history`: the states of all streams, one row each; `slots`: the row of each stream of the batch. A layer reads the
inputs that it keeps, at `offset`, and replaces them by the newest.
"""

from __future__ import annotations

import numpy as np

from .elementwise import (
    activate,
    add_bias_and_activate,
    add_bias_and_gelu,
    add_lines,
    copy_lines,
    load_history,
    store_history,
)
from .gemm import multiply, product
from .jit import Kernel, jit, jit_fast_sums
from .panels import PANEL, Array

BLOCK_NUMBERS = 32768
"""Numbers of intermediate results in a block: 128 KB of float32."""
MIN_BLOCK_LINES = 96
"""Wide layers are not divided further, because each block reads all weights."""


@jit
def _inputs_behind_history(x: Array, history: Array, slots: Array, offset: int, reach: int) -> Array:
    """Returns the last `reach` inputs of each stream; behind them are unwritten lines for those of `x`."""
    lines, inputs = x.shape
    buffer = np.empty((reach * len(slots) + lines, inputs), x.dtype)
    load_history(history, slots, offset, reach, buffer)
    return buffer


@jit
def _block_of_products(x: Array, w: Array) -> Array:
    """Returns memory for the products of as many lines of `x` with `w` as are computed at once."""
    width = w.shape[0] * PANEL
    return np.empty((min(max(BLOCK_NUMBERS // width, MIN_BLOCK_LINES), len(x)), width), x.dtype)


def _convolve(
    x: Array,
    history: Array,
    slots: Array,
    offset: int,
    taps: int,
    dilation: int,
    frequency: Array,
    gain: Array,
    w: Array,
    bias: Array,
    stride: int,
    out: Array,
) -> None:
    """Writes the causal convolution of the activation of `x`, or of `x` itself if `gain` is empty, to `out`.

    A step has `stride` outputs of as many channels as `out`, beside each other in `w` and `bias`. `out`:
    [lines * stride, outputs].
    """
    lines, inputs = x.shape
    rows, outputs = len(slots), out.shape[1]
    reach = (taps - 1) * dilation
    begin = reach * rows
    buffer = _inputs_behind_history(x, history, slots, offset, reach)
    if len(gain):
        activate(x, 0, lines, frequency, gain, buffer, begin)
    else:
        copy_lines(x, buffer, begin)
    products = _block_of_products(x, w)
    for first in range(0, lines, len(products)):
        count = min(len(products), lines - first)
        multiply(buffer, first, count, taps, dilation * rows, inputs, w, products)
        for n in range(count):
            step, row = divmod(first + n, rows)
            for phase in range(stride):
                line = out[(step * stride + phase) * rows + row]
                source = products[n, phase * outputs : (phase + 1) * outputs]
                constant = bias[phase * outputs : (phase + 1) * outputs]
                for i in range(outputs):
                    line[i] = source[i] + constant[i]
    store_history(history, slots, offset, reach, buffer)


def _residual_unit(
    x: Array,
    history: Array,
    slots: Array,
    offset: int,
    taps: int,
    dilation: int,
    frequency: Array,
    gain: Array,
    w: Array,
    bias: Array,
    inner_frequency: Array,
    inner_gain: Array,
    pointwise: Array,
    pointwise_bias: Array,
) -> None:
    """Adds pointwise(snake(convolution(snake(x)))) to `x`.

    The parameters of the second snake, `bias` and `pointwise_bias` are as wide as the panels, and repeated alike.
    """
    lines, channels = x.shape
    rows = len(slots)
    reach = (taps - 1) * dilation
    begin = reach * rows
    buffer = _inputs_behind_history(x, history, slots, offset, reach)
    branch = _block_of_products(x, w)
    update = np.empty_like(branch)
    for first in range(0, lines, len(branch)):
        count = min(len(branch), lines - first)
        activate(x, first, count, frequency, gain, buffer, begin + first)
        multiply(buffer, first, count, taps, dilation * rows, channels, w, branch)
        add_bias_and_activate(branch, count, bias, inner_frequency, inner_gain)
        product(branch, count, pointwise, update)
        add_lines(x, first, count, update, pointwise_bias)
    store_history(history, slots, offset, reach, buffer)


def _conv_next(
    x: Array,
    history: Array,
    slots: Array,
    offset: int,
    depthwise: Array,
    bias: Array,
    widen: Array,
    widen_bias: Array,
    narrow: Array,
    narrow_bias: Array,
    eps: float,
) -> None:
    """Adds narrow(gelu(widen(norm(depthwise(x))))) to `x`. `depthwise`: [kernel, channels]."""
    lines, channels = x.shape
    rows, reach = len(slots), len(depthwise) - 1
    buffer = _inputs_behind_history(x, history, slots, offset, reach)
    copy_lines(x, buffer, reach * rows)
    normed = np.empty((lines, channels), x.dtype)
    for line in range(lines):
        _depthwise_norm(buffer, line, rows, depthwise, bias, eps, normed[line])
    wide = np.empty((lines, widen.shape[0] * PANEL), x.dtype)
    product(normed, lines, widen, wide)
    add_bias_and_gelu(wide, lines, widen_bias)
    update = np.empty((lines, narrow.shape[0] * PANEL), x.dtype)
    product(wide, lines, narrow, update)
    add_lines(x, 0, lines, update, narrow_bias)
    store_history(history, slots, offset, reach, buffer)


@jit_fast_sums
def _depthwise_norm(buffer: Array, line: int, rows: int, depthwise: Array, bias: Array, eps: float, out: Array) -> None:
    """Writes the depthwise convolution of one line, normalised to mean 0 and variance 1, to `out`."""
    width = len(out)
    for i in range(width):
        out[i] = bias[i]
    for tap in range(len(depthwise)):
        source, factors = buffer[line + tap * rows], depthwise[tap]
        for i in range(width):
            out[i] += source[i] * factors[i]
    total = out.dtype.type(0)
    for i in range(width):
        total += out[i]
    mean = total / out.dtype.type(width)
    squares = out.dtype.type(0)
    for i in range(width):
        squares += (out[i] - mean) * (out[i] - mean)
    factor = out.dtype.type(1) / np.sqrt(squares / out.dtype.type(width) + out.dtype.type(eps))
    for i in range(width):
        out[i] = (out[i] - mean) * factor


def _output_conv(
    x: Array,
    history: Array,
    slots: Array,
    offset: int,
    taps: int,
    frequency: Array,
    gain: Array,
    w: Array,
    bias: Array,
    pcm: Array,
) -> None:
    """Writes the convolution of the activation of `x` to one channel to `pcm`, [rows, steps], within [-1, 1].

    `w`: [inputs, taps] in panels, so that one product has all taps and an output is the sum of a diagonal.
    """
    lines, rows, reach = len(x), len(slots), taps - 1
    begin = reach * rows
    buffer = _inputs_behind_history(x, history, slots, offset, reach)
    activate(x, 0, lines, frequency, gain, buffer, begin)
    products = np.empty((len(buffer), w.shape[0] * PANEL), x.dtype)
    product(buffer, len(buffer), w, products)
    for row in range(rows):
        for step in range(pcm.shape[1]):
            total = bias[0]
            for tap in range(taps):
                total += products[(step + tap) * rows + row, tap]
            if total > 1:  # unlike min and max, comparisons leave NaN as it is
                total = x.dtype.type(1)
            elif total < -1:
                total = x.dtype.type(-1)
            pcm[row, step] = total
    store_history(history, slots, offset, reach, buffer)


convolve = Kernel(_convolve)
residual_unit = Kernel(_residual_unit)
conv_next = Kernel(_conv_next)
output_conv = Kernel(_output_conv)
