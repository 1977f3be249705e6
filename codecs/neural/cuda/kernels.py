"""The codec decoder's kernels on a GPU, in Triton: convolutions with what follows them, and what a stream remembers.

The layout is that of `layers.py`, [steps, rows, channels]: the inputs of tap k of a convolution are the same lines,
k * dilation * rows further on, so a convolution is one matrix product whose left side is read at an offset a tap.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _snake(x, frequency, gain, FAST: tl.constexpr):
    turn = x * frequency
    if FAST:
        # Into [-pi, pi], where the hardware's own sine is off by 2^-20 at most.
        turn -= 6.283185307179586 * tl.floor(turn * 0.15915494309189535 + 0.5)
        wave = tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;", "=f,f", [turn], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip  # one call
    else:
        wave = tl.sin(turn)
    return x + gain * wave * wave


@triton.jit
def convolve(
    source, weight, bias, residual, onward, frequency, gain, lines, rows, dilation, room,
    INPUTS: tl.constexpr, TAPS: tl.constexpr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr, ADD: tl.constexpr,
    KEEP: tl.constexpr, ONWARD: tl.constexpr, WAVE: tl.constexpr,
    LINES: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip  # one argument list
    """Causal convolution of `lines` output lines, all rows of a step side by side.

    `source`: [lines + reach * rows, INPUTS]; `weight`: [TAPS * INPUTS, STRIDE * CHANNELS]. With a STRIDE each line
    becomes one line a phase. With ADD the result is added to `residual` (float32); with KEEP it is written there; with
    ONWARD it is the next layer's input, behind `room` lines of history, through a snake if WAVE. FAST: with the sine of
    the hardware.
    """
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.program_id(1) * LINES + tl.arange(0, LINES)
    WIDTH: tl.constexpr = STRIDE * CHANNELS
    value = tl.zeros([LINES, COLUMNS], tl.float32)
    PIECES: tl.constexpr = (INPUTS + SPAN - 1) // SPAN
    part = tl.arange(0, SPAN)
    lines_at = source + at.to(tl.int64)[:, None] * INPUTS + part[None, :]
    weights_at = weight + part[:, None] * WIDTH + columns[None, :]
    # One loop over taps and inputs: loads of the next piece are under way at a tap's end too.
    for piece in range(TAPS * PIECES):
        tap, start = piece // PIECES, (piece % PIECES) * SPAN
        seen_at = lines_at + (tap * dilation * rows * INPUTS + start)
        taps_at = weights_at + (tap * INPUTS + start) * WIDTH
        inputs = start + part
        # Where the sizes divide, which they do but for small channels, loads need no mask.
        if INPUTS % SPAN == 0:
            seen = tl.load(seen_at, mask=at[:, None] < lines, other=0.0)
        else:
            seen = tl.load(seen_at, mask=(at[:, None] < lines) & (inputs[None, :] < INPUTS), other=0.0)
        if INPUTS % SPAN == 0 and WIDTH % COLUMNS == 0:
            taps = tl.load(taps_at)
        else:
            taps = tl.load(taps_at, mask=(inputs[:, None] < INPUTS) & (columns[None, :] < WIDTH), other=0.0)
        value = tl.dot(seen, taps, value, input_precision="ieee")
    real = columns < WIDTH
    value += tl.load(bias + columns, mask=real, other=0.0)[None, :]
    phase, channel = columns // CHANNELS, columns % CHANNELS
    step, row = at // rows, at % rows
    line = ((step * STRIDE)[:, None] + phase[None, :]) * rows + row[:, None]
    place = line.to(tl.int64) * CHANNELS + channel[None, :]
    inside = (at[:, None] < lines) & real[None, :]
    if ADD:
        value += tl.load(residual + place, mask=inside, other=0.0)
    if KEEP:
        tl.store(residual + place, value, mask=inside)
    if ONWARD:
        if WAVE:
            value = _snake(
                value,
                tl.load(frequency + channel, mask=real, other=0.0)[None, :],
                tl.load(gain + channel, mask=real, other=0.0)[None, :],
                FAST,
            )
        tl.store(onward + room * rows * CHANNELS + place, value.to(onward.dtype.element_ty), mask=inside)


@triton.jit
def attend_window(
    qkv, turn, slab, slots, frames, out, offset, width, past, rows, scale,
    STEPS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr, SPAN: tl.constexpr,
    PAST: tl.constexpr,
):  # fmt: skip  # one argument list
    """Attention of one row and head over its last `past` steps and the new ones, which go into the stream's history.

    `qkv`: [STEPS, rows, 3, HEADS, DIM]; `turn`: cosine and sine, float32 [STEPS, rows, DIM / 2, 2]; `slab`: keys and
    values, [past, 2, HEADS, DIM] at `offset` of a line of `width`; `frames`: int64 [rows], how many steps the stream
    has behind it; `out`: [STEPS, rows, HEADS, DIM]. QUERIES, SPAN, PAST: powers of two from 16, no less than what they
    hold.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    step, channel = tl.arange(0, QUERIES), tl.arange(0, SPAN)
    line = (step * rows + row).to(tl.int64)
    inside = (step < STEPS)[:, None] & (channel < DIM)[None, :]
    angles = turn + line[:, None] * DIM + (channel // 2 * 2)[None, :]
    cosine = tl.load(angles, mask=inside, other=0.0)
    sine = tl.load(angles + 1, mask=inside, other=0.0)
    sine = tl.where((channel % 2 == 0)[None, :], -sine, sine)
    own = qkv + line[:, None] * (3 * HEADS * DIM) + head * DIM
    neighbour = (channel ^ 1)[None, :]
    at = channel[None, :]
    query = tl.load(own + at, mask=inside, other=0.0).to(tl.float32) * cosine
    query += tl.load(own + neighbour, mask=inside, other=0.0).to(tl.float32) * sine
    own += HEADS * DIM
    key = tl.load(own + at, mask=inside, other=0.0).to(tl.float32) * cosine
    key += tl.load(own + neighbour, mask=inside, other=0.0).to(tl.float32) * sine
    value = tl.load(own + HEADS * DIM + at, mask=inside, other=0.0)
    query, key = query.to(value.dtype), key.to(value.dtype)

    number = tl.arange(0, PAST)
    # Young streams have fewer than `past` steps behind them; what is there is another's.
    known = (number < past) & (number >= past - tl.load(frames + row))
    stretch = slab + tl.load(slots + row) * width + offset + head * DIM + at
    there = known[:, None] & (channel < DIM)[None, :]
    old_at = stretch + number[:, None] * (2 * HEADS * DIM)
    old_keys = tl.load(old_at, mask=there, other=0.0)
    old_values = tl.load(old_at + HEADS * DIM, mask=there, other=0.0)

    far = tl.dot(query, tl.trans(old_keys), input_precision="ieee") * scale
    far = tl.where(known[None, :] & (number[None, :] >= step[:, None]), far, float("-inf"))
    near = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    age = step[:, None] - step[None, :]
    near = tl.where((age >= 0) & (age <= past), near, float("-inf"))
    most = tl.maximum(tl.max(far, 1), tl.max(near, 1))[:, None]
    far, near = tl.exp(far - most), tl.exp(near - most)
    mixed = tl.dot(far.to(value.dtype), old_values, input_precision="ieee")
    mixed += tl.dot(near.to(value.dtype), value, input_precision="ieee")
    mixed /= (tl.sum(far, 1) + tl.sum(near, 1))[:, None]
    tl.store(out + line[:, None] * (HEADS * DIM) + head * DIM + at, mixed.to(out.dtype.element_ty), mask=inside)

    # Everybody has read before anybody writes.
    tl.debug_barrier()
    moved = stretch + (number - STEPS)[:, None] * (2 * HEADS * DIM)
    kept = ((number >= STEPS) & (number < past))[:, None] & (channel < DIM)[None, :]
    tl.store(moved, old_keys, mask=kept)
    tl.store(moved + HEADS * DIM, old_values, mask=kept)
    new = stretch + (past - STEPS + step)[:, None] * (2 * HEADS * DIM)
    kept = inside & (past - STEPS + step >= 0)[:, None]
    tl.store(new, key, mask=kept)
    tl.store(new + HEADS * DIM, value, mask=kept)


@triton.jit
def add_rmsnorm(x, branch, out, eps, WIDTH: tl.constexpr, SPAN: tl.constexpr, ADD: tl.constexpr):
    """The norm of a line of `x`, float32; with ADD of `x` and `branch`, whose sum is left in `x`."""
    line = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, SPAN)
    inside = at < WIDTH
    value = tl.load(x + line + at, mask=inside, other=0.0)
    if ADD:
        value += tl.load(branch + line + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + line + at, value, mask=inside)
    value *= tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    tl.store(out + line + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def swiglu(both, out, WIDTH: tl.constexpr, SPAN: tl.constexpr):
    """`both`: a line's gates, then what they let through, WIDTH each."""
    line = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, SPAN)
    inside = at < WIDTH
    gate = tl.load(both + 2 * line + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(both + 2 * line + WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + line + at, (value * gate / (1.0 + tl.exp(-gate))).to(out.dtype.element_ty), mask=inside)


@triton.jit
def depthwise_conv_norm(
    source, weight, bias, out, rows, eps, CHANNELS: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr
):
    """ConvNeXt's depthwise convolution and norm of one line; `weight`: [TAPS, CHANNELS]."""
    line = tl.program_id(0)
    channels = tl.arange(0, SPAN)
    real = channels < CHANNELS
    value = tl.load(bias + channels, mask=real, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        seen = tl.load(source + (line + tap * rows).to(tl.int64) * CHANNELS + channels, mask=real, other=0.0)
        value += seen.to(tl.float32) * tl.load(weight + tap * CHANNELS + channels, mask=real, other=0.0)
    mean = tl.sum(tl.where(real, value, 0.0), 0) / CHANNELS
    apart = tl.where(real, value - mean, 0.0)
    value = apart * tl.rsqrt(tl.sum(apart * apart, 0) / CHANNELS + eps)
    tl.store(out + line.to(tl.int64) * CHANNELS + channels, value.to(out.dtype.element_ty), mask=real)


@triton.jit
def output_conv(
    source, weight, bias, pcm, steps, rows,
    INPUTS: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip  # one argument list
    """The convolution to one channel, clamped: `pcm` float32 [rows, steps]; `weight`: [TAPS, INPUTS]."""
    row = tl.program_id(1)
    at = tl.program_id(0) * STEPS + tl.arange(0, STEPS)
    inputs = tl.arange(0, SPAN)
    products = tl.zeros([STEPS, SPAN], tl.float32)
    for tap in tl.static_range(TAPS):
        line = (at + tap) * rows + row
        seen = tl.load(
            source + line.to(tl.int64)[:, None] * INPUTS + inputs[None, :],
            mask=(at[:, None] < steps) & (inputs[None, :] < INPUTS),
            other=0.0,
        )
        products += seen.to(tl.float32) * tl.load(weight + tap * INPUTS + inputs, mask=inputs < INPUTS, other=0.0)
    value = tl.sum(products, 1)
    value = tl.minimum(tl.maximum(value + tl.load(bias), -1.0), 1.0)
    tl.store(pcm + row.to(tl.int64) * steps + at, value, mask=at < steps)


@triton.jit
def store_history(slab, slots, fresh, rooms, pieces, width, rows, KEEP: tl.constexpr, SPAN: tl.constexpr):
    """Between the streams' histories and what their layers read, for all layers at once.

    `slab`: [slots, width]; `pieces`: int64 [n, 6], where in `rooms` a layer's past begins, and where its last steps do;
    at which number of a history they are kept; which of them are moved here, from where on and of how many; channels.
    Writes the history if KEEP, else the room: zeros where a stream is `fresh`.
    """
    piece = pieces + tl.program_id(0) * 6
    row = tl.program_id(1)
    at = tl.load(piece + 3).to(tl.int32) + tl.arange(0, SPAN)
    inside = at < tl.load(piece + 4)
    channels = tl.load(piece + 5).to(tl.int32)
    there = slab + tl.load(slots + row) * width + tl.load(piece + 2) + at
    line = (at // channels * rows + row).to(tl.int64)
    here = rooms + line * channels + at % channels
    if KEEP:
        tl.store(there, tl.load(here + tl.load(piece + 1), mask=inside), mask=inside)
    else:
        past = tl.load(there, mask=inside & (tl.load(fresh + row) == 0), other=0.0)
        tl.store(here + tl.load(piece), past, mask=inside)
