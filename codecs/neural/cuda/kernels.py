"""The codec decoder's Triton kernels: convolutions with their epilogues, windowed attention, norms, stream histories.

The layout is that of `..layers`, [steps, rows, channels]: the inputs of tap k of a convolution are the same lines,
k * dilation * rows further on. So a convolution is one matrix product whose left operand is read at an offset for each
tap. The talker has its own `swiglu` and `add_rmsnorm`, because codecs share no code with the pipeline.
"""

from __future__ import annotations

import triton
import triton.language as tl

_jit = triton.jit(
    do_not_specialize=["lines", "dilation", "history_steps"], do_not_specialize_on_alignment=["rows", "steps"]
)
"""For kernels whose sizes differ from batch to batch: Triton compiles one kernel for all, but for single rows. Nothing
would be gained: which accesses are aligned follows from the channels."""


@triton.jit
def _snake(x, frequency, gain, FAST: tl.constexpr):
    """x + gain * sin(frequency * x)^2. FAST: with the hardware's sine."""
    angle = x * frequency
    if FAST:
        # Reduced to [-pi, pi], where the error of the hardware's sine is at most 2^-20.
        angle -= 6.283185307179586 * tl.floor(angle * 0.15915494309189535 + 0.5)
        sine = tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;", "=f,f", [angle], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip  # one call
    else:
        sine = tl.sin(angle)
    return x + gain * sine * sine


@triton.jit
def _store_tile(
    value, at, columns, bias, residual, output, frequency, gain, lines, rows, history_steps,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, ADD: tl.constexpr, STORE: tl.constexpr, OUTPUT: tl.constexpr,
    SNAKE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip  # one argument list
    """The end of a convolution: takes `value`, the products of lines `at` and `columns`; the rest as of `convolve`."""
    real = columns < STRIDE * CHANNELS
    value += tl.load(bias + columns, mask=real, other=0.0)[None, :]
    if STRIDE == 1:
        channel = columns
        place = at.to(tl.int64)[:, None] * CHANNELS + columns[None, :]
    else:
        phase, channel = columns // CHANNELS, columns % CHANNELS
        step, row = at // rows, at % rows
        line = ((step * STRIDE)[:, None] + phase[None, :]) * rows + row[:, None]
        place = line.to(tl.int64) * CHANNELS + channel[None, :]
    mask = (at[:, None] < lines) & real[None, :]
    if ADD:
        value += tl.load(residual + place, mask=mask, other=0.0)
    if STORE:
        tl.store(residual + place, value, mask=mask)
    if OUTPUT:
        if SNAKE:
            value = _snake(
                value,
                tl.load(frequency + channel, mask=real, other=0.0)[None, :],
                tl.load(gain + channel, mask=real, other=0.0)[None, :],
                FAST,
            )
        tl.store(output + history_steps * rows * CHANNELS + place, value.to(output.dtype.element_ty), mask=mask)


@_jit
def convolve(
    source, weight, bias, residual, output, frequency, gain, lines, rows, dilation, history_steps,
    INPUTS: tl.constexpr, TAPS: tl.constexpr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr, ADD: tl.constexpr,
    STORE: tl.constexpr, OUTPUT: tl.constexpr, SNAKE: tl.constexpr,
    LINES: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip  # one argument list
    """Causal convolution to `lines` lines, the rows of a step side by side; a program computes LINES by COLUMNS.

    `source`: [lines + reach * rows, INPUTS]; `weight`: [TAPS * INPUTS, STRIDE * CHANNELS]. With a STRIDE above 1 each
    line becomes STRIDE lines, one for each phase. With ADD the result is added to `residual` (float32), with STORE it
    is written there, with OUTPUT it is written as the next layer's input behind `history_steps` steps of history,
    through a snake with SNAKE. FAST: with the hardware's sine.
    """
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.program_id(1) * LINES + tl.arange(0, LINES)
    WIDTH: tl.constexpr = STRIDE * CHANNELS
    value = tl.zeros([LINES, COLUMNS], tl.float32)
    SLICES: tl.constexpr = (INPUTS + SPAN - 1) // SPAN
    part = tl.arange(0, SPAN)
    lines_at = source + at.to(tl.int64)[:, None] * INPUTS + part[None, :]
    weights_at = weight + part[:, None] * WIDTH + columns[None, :]
    # One loop over taps and inputs, so that the loads are pipelined across the end of a tap.
    for number in range(TAPS * SLICES):
        tap, start = number // SLICES, (number % SLICES) * SPAN
        tap_lines_at = lines_at + (tap * dilation * rows * INPUTS + start)
        tap_weights_at = weights_at + (tap * INPUTS + start) * WIDTH
        inputs = start + part
        # Loads need a mask only where a size is not a multiple of the tile, which is so for few channels.
        if INPUTS % SPAN == 0:
            tap_lines = tl.load(tap_lines_at, mask=at[:, None] < lines, other=0.0)
        else:
            tap_lines = tl.load(tap_lines_at, mask=(at[:, None] < lines) & (inputs[None, :] < INPUTS), other=0.0)
        if INPUTS % SPAN == 0 and WIDTH % COLUMNS == 0:
            tap_weights = tl.load(tap_weights_at)
        else:
            tap_weights = tl.load(
                tap_weights_at, mask=(inputs[:, None] < INPUTS) & (columns[None, :] < WIDTH), other=0.0
            )
        value = tl.dot(tap_lines, tap_weights, value, input_precision="ieee")
    _store_tile(
        value, at, columns, bias, residual, output, frequency, gain, lines, rows, history_steps, CHANNELS, STRIDE, ADD,
        STORE, OUTPUT, SNAKE, FAST,
    )  # fmt: skip  # one argument list


@_jit
def convolve_by_tma(
    source, weight, bias, residual, output, frequency, gain, lines, rows, dilation, history_steps,
    INPUTS: tl.constexpr, TAPS: tl.constexpr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr, ADD: tl.constexpr,
    STORE: tl.constexpr, OUTPUT: tl.constexpr, SNAKE: tl.constexpr,
    LINES: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip  # one argument list
    """As `convolve`; the chip's tensor memory accelerator (TMA) loads the operands' tiles.

    `source`: tensor descriptor of [lines + reach * rows, INPUTS] in tiles of LINES by SPAN; `weight`: one of
    [TAPS * INPUTS, STRIDE * CHANNELS] in tiles of SPAN by COLUMNS. SPAN divides INPUTS. Beyond their ends they read 0.
    """
    tl.static_assert(INPUTS % SPAN == 0)
    column, first = tl.program_id(0) * COLUMNS, tl.program_id(1) * LINES
    value = tl.zeros([LINES, COLUMNS], tl.float32)
    SLICES: tl.constexpr = INPUTS // SPAN
    for number in range(TAPS * SLICES):
        tap_lines = source.load([first + number // SLICES * dilation * rows, number % SLICES * SPAN])
        value = tl.dot(tap_lines, weight.load([number * SPAN, column]), value, input_precision="ieee")
    at, columns = first + tl.arange(0, LINES), column + tl.arange(0, COLUMNS)
    _store_tile(
        value, at, columns, bias, residual, output, frequency, gain, lines, rows, history_steps, CHANNELS, STRIDE, ADD,
        STORE, OUTPUT, SNAKE, FAST,
    )  # fmt: skip  # one argument list


@_jit
def attend_window(
    qkv, rope, slab, slots, frames, out, offset, width, window, rows, scale,
    STEPS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr, SPAN: tl.constexpr,
    PAST: tl.constexpr,
):  # fmt: skip  # one argument list
    """Attention of one row and head over its last `window` steps and the new ones, which join the stream's history.

    `qkv`: [STEPS, rows, 3, HEADS, DIM]; `rope`: cosine and sine, float32 [STEPS, rows, DIM / 2, 2]; `slab`: keys and
    values, [window, 2, HEADS, DIM] at `offset` of a line of `width`, where step n of a stream is at n % window;
    `frames`: int64 [rows], steps that the stream has decoded; `out`: [STEPS, rows, HEADS, DIM]. QUERIES, SPAN, PAST:
    powers of two from 16 that cover STEPS, DIM and `window`.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    step, channel = tl.arange(0, QUERIES), tl.arange(0, SPAN)
    line = (step * rows + row).to(tl.int64)
    mask = (step < STEPS)[:, None] & (channel < DIM)[None, :]
    angles = rope + line[:, None] * DIM + (channel // 2 * 2)[None, :]
    cosine = tl.load(angles, mask=mask, other=0.0)
    sine = tl.load(angles + 1, mask=mask, other=0.0)
    sine = tl.where((channel % 2 == 0)[None, :], -sine, sine)
    own = qkv + line[:, None] * (3 * HEADS * DIM) + head * DIM
    neighbour = (channel ^ 1)[None, :]
    at = channel[None, :]
    query = tl.load(own + at, mask=mask, other=0.0).to(tl.float32) * cosine
    query += tl.load(own + neighbour, mask=mask, other=0.0).to(tl.float32) * sine
    own += HEADS * DIM
    key = tl.load(own + at, mask=mask, other=0.0).to(tl.float32) * cosine
    key += tl.load(own + neighbour, mask=mask, other=0.0).to(tl.float32) * sine
    value = tl.load(own + HEADS * DIM + at, mask=mask, other=0.0)
    query, key = query.to(value.dtype), key.to(value.dtype)

    place = tl.arange(0, PAST)
    decoded = tl.load(frames + row).to(tl.int32)
    ring = tl.maximum(window, 1)  # no step is kept in a window of none
    # How long ago the step in each place was, from 0. A stream with fewer than `window` steps has values of the slot's
    # previous stream in the other places.
    age = (decoded + window - 1 - place) % ring
    known = (place < window) & (age < decoded)
    history = slab + tl.load(slots + row) * width + offset + head * DIM + at
    past_mask = known[:, None] & (channel < DIM)[None, :]
    past_at = history + place[:, None] * (2 * HEADS * DIM)
    past_keys = tl.load(past_at, mask=past_mask, other=0.0)
    past_values = tl.load(past_at + HEADS * DIM, mask=past_mask, other=0.0)

    past_scores = tl.dot(query, tl.trans(past_keys), input_precision="ieee") * scale
    past_scores = tl.where(known[None, :] & (age[None, :] + step[:, None] < window), past_scores, float("-inf"))
    new_scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    lag = step[:, None] - step[None, :]
    new_scores = tl.where((lag >= 0) & (lag <= window), new_scores, float("-inf"))
    row_max = tl.maximum(tl.max(past_scores, 1), tl.max(new_scores, 1))[:, None]
    past_scores, new_scores = tl.exp(past_scores - row_max), tl.exp(new_scores - row_max)
    attended = tl.dot(past_scores.to(value.dtype), past_values, input_precision="ieee")
    attended += tl.dot(new_scores.to(value.dtype), value, input_precision="ieee")
    attended /= (tl.sum(past_scores, 1) + tl.sum(new_scores, 1))[:, None]
    tl.store(out + line[:, None] * (HEADS * DIM) + head * DIM + at, attended.to(out.dtype.element_ty), mask=mask)

    # All threads must have read the history before any of them overwrites a part of it.
    tl.debug_barrier()
    new = history + ((decoded + step) % ring)[:, None] * (2 * HEADS * DIM)
    stored = mask & (step + window >= STEPS)[:, None]
    tl.store(new, key, mask=stored)
    tl.store(new + HEADS * DIM, value, mask=stored)


@triton.jit
def add_rmsnorm(x, branch, out, eps, WIDTH: tl.constexpr, SPAN: tl.constexpr, ADD: tl.constexpr):
    """RMS norm of a line of `x` (float32); with ADD, `branch` is added to `x` first. A program a line."""
    line = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, SPAN)
    mask = at < WIDTH
    value = tl.load(x + line + at, mask=mask, other=0.0)
    if ADD:
        value += tl.load(branch + line + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(x + line + at, value, mask=mask)
    value *= tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    tl.store(out + line + at, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def swiglu(gate_up, out, WIDTH: tl.constexpr, SPAN: tl.constexpr):
    """silu(gate) * up of a line of `gate_up`, WIDTH gates and then WIDTH ups; a program a line."""
    line = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, SPAN)
    mask = at < WIDTH
    gate = tl.load(gate_up + 2 * line + at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + 2 * line + WIDTH + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + line + at, (up * gate / (1.0 + tl.exp(-gate))).to(out.dtype.element_ty), mask=mask)


@_jit
def depthwise_conv_norm(
    source, weight, bias, out, rows, eps, CHANNELS: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr
):
    """Depthwise convolution and layer norm of ConvNeXt, a program a line; `weight`: [TAPS, CHANNELS]."""
    line = tl.program_id(0)
    channels = tl.arange(0, SPAN)
    real = channels < CHANNELS
    value = tl.load(bias + channels, mask=real, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        inputs = tl.load(source + (line + tap * rows).to(tl.int64) * CHANNELS + channels, mask=real, other=0.0)
        value += inputs.to(tl.float32) * tl.load(weight + tap * CHANNELS + channels, mask=real, other=0.0)
    mean = tl.sum(tl.where(real, value, 0.0), 0) / CHANNELS
    deviation = tl.where(real, value - mean, 0.0)
    value = deviation * tl.rsqrt(tl.sum(deviation * deviation, 0) / CHANNELS + eps)
    tl.store(out + line.to(tl.int64) * CHANNELS + channels, value.to(out.dtype.element_ty), mask=real)


@_jit
def output_conv(
    source, weight, bias, pcm, steps, rows,
    INPUTS: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip  # one argument list
    """Convolution to one channel, clamped to [-1, 1]: `pcm` float32 [rows, steps]; `weight`: [TAPS, INPUTS].

    Each of STEPS steps is read once, SPAN channels at a time, and multiplied with all taps, at most 16; then each
    output adds the products of its taps, which are in other lines. The last TAPS - 1 steps have no output here.
    """
    tl.static_assert(TAPS <= 16)
    row = tl.program_id(1)
    at = tl.program_id(0) * (STEPS - TAPS + 1) + tl.arange(0, STEPS)
    own, tap = tl.arange(0, STEPS), tl.arange(0, 16)
    products = tl.zeros([STEPS, 16], tl.float32)
    for start in range(0, INPUTS, SPAN):
        inputs = start + tl.arange(0, SPAN)
        lines = tl.load(
            source + (at * rows + row).to(tl.int64)[:, None] * INPUTS + inputs[None, :],
            mask=(at[:, None] < steps + TAPS - 1) & (inputs[None, :] < INPUTS),
            other=0.0,
        )
        taps = tl.load(
            weight + tap[None, :] * INPUTS + inputs[:, None],
            mask=(tap[None, :] < TAPS) & (inputs[:, None] < INPUTS),
            other=0.0,
        )
        products = tl.dot(lines, taps, products, input_precision="ieee")
    products = tl.gather(products, tl.minimum(own[:, None] + tap[None, :], STEPS - 1), 0)
    value = tl.sum(tl.where((tap < TAPS)[None, :], products, 0.0), 1) + tl.load(bias)
    value = tl.minimum(tl.maximum(value, -1.0), 1.0)
    tl.store(pcm + row.to(tl.int64) * steps + at, value, mask=(own < STEPS - TAPS + 1) & (at < steps))


@_jit
def store_history(slab, slots, fresh, buffers, segments, width, rows, STORE: tl.constexpr, SPAN: tl.constexpr):
    """Copy between the streams' histories and the input buffers, for all layers at once; a program a segment and row.

    `slab`: [slots, width], histories; `buffers`: the workspace. `segments`: int64 [n, 6]: where a layer's history
    starts in `buffers`; where its last steps start; the layer's offset in a history; first number of the segment in the
    layer's history; numbers of that history; channels. With STORE the last steps become the history, otherwise the
    history is copied in front of the inputs, as zeros for `fresh` streams.
    """
    segment = segments + tl.program_id(0) * 6
    row = tl.program_id(1)
    at = tl.load(segment + 3).to(tl.int32) + tl.arange(0, SPAN)
    mask = at < tl.load(segment + 4)
    channels = tl.load(segment + 5).to(tl.int32)
    history = slab + tl.load(slots + row) * width + tl.load(segment + 2) + at
    line = (at // channels * rows + row).to(tl.int64)
    buffer = buffers + line * channels + at % channels
    if STORE:
        tl.store(history, tl.load(buffer + tl.load(segment + 1), mask=mask), mask=mask)
    else:
        values = tl.load(history, mask=mask & (tl.load(fresh + row) == 0), other=0.0)
        tl.store(buffer + tl.load(segment), values, mask=mask)
