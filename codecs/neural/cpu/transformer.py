"""A layer of the codec's transformer, compiled; lines and history as in `vocoder.py`."""

from __future__ import annotations

import numpy as np

from .elementwise import copy_line
from .gemm import product
from .jit import Kernel, jit_fast_sums
from .panels import PANEL, Array


def _windowed_layer(
    x: Array,
    history: Array,
    slots: Array,
    frames: Array,
    offset: int,
    past: int,
    heads: int,
    cosines: Array,
    sines: Array,
    eps: float,
    qkv: Array,
    output: Array,
    gate_up: Array,
    down: Array,
) -> None:
    """Adds attention and then SwiGLU, each of the norm, to `x` [lines, hidden].

    The history has keys and values of the last `past` steps. `frames`: int64 [rows], position in its stream of each
    row's first step. `cosines`, `sines`: [lines, head_dim / 2], of the rotary angles of adjacent pairs of channels.
    """
    lines, hidden = x.shape
    rows, half = len(slots), cosines.shape[1]
    width = heads * 2 * half
    normed, projected = np.empty((lines, hidden), x.dtype), np.empty((lines, qkv.shape[0] * PANEL), x.dtype)
    rms_norm_lines(x, eps, normed)
    product(normed, lines, qkv, projected)
    for line in range(lines):
        _rotate(projected[line, : 2 * width], cosines[line], sines[line])
    attended, scores = np.empty((lines, width), x.dtype), np.empty(past + 1, x.dtype)
    for line in range(lines):
        step, row = divmod(line, rows)
        kept = history[slots[row], offset : offset + past * 2 * width].reshape(past, 2 * width)
        # A new stream has fewer than `past` frames before the chunk.
        oldest = max(step, past - frames[row])
        for head in range(heads):
            _attend(projected, line, rows, kept, oldest, width, head * 2 * half, 2 * half, scores, attended[line])
    for row in range(rows):
        kept = history[slots[row], offset : offset + past * 2 * width].reshape(past, 2 * width)
        _keep_newest(projected[row::rows], width, kept)
    update = np.empty((lines, output.shape[0] * PANEL), x.dtype)
    product(attended, lines, output, update)
    _add(x, update)
    rms_norm_lines(x, eps, normed)
    inner = np.empty((lines, gate_up.shape[0] * PANEL), x.dtype)
    product(normed, lines, gate_up, inner)
    size = down.shape[1]
    for line in range(lines):
        for i in range(size):
            gate = inner[line, i]
            inner[line, i] = gate / (x.dtype.type(1) + np.exp(-gate)) * inner[line, size + i]
    product(inner, lines, down, update)
    _add(x, update)


@jit_fast_sums
def rms_norm_lines(x: Array, eps: float, out: Array) -> None:
    """Writes the RMS norm of each line of `x`, without weights, to `out`."""
    lines, width = x.shape
    for line in range(lines):
        total = x.dtype.type(0)
        for i in range(width):
            total += x[line, i] * x[line, i]
        factor = x.dtype.type(1) / np.sqrt(total / x.dtype.type(width) + x.dtype.type(eps))
        for i in range(width):
            out[line, i] = x[line, i] * factor


@jit_fast_sums
def _rotate(x: Array, cosines: Array, sines: Array) -> None:
    """Applies the rotary embedding to all heads in `x`, with adjacent channels as pairs."""
    half = len(cosines)
    for start in range(0, len(x), 2 * half):
        for i in range(half):
            even, odd = x[start + 2 * i], x[start + 2 * i + 1]
            x[start + 2 * i] = even * cosines[i] - odd * sines[i]
            x[start + 2 * i + 1] = even * sines[i] + odd * cosines[i]


@jit_fast_sums
def _attend(
    projected: Array,
    line: int,
    rows: int,
    kept: Array,
    oldest: int,
    width: int,
    head: int,
    dim: int,
    scores: Array,
    out: Array,
) -> None:
    """Attention of one head of one line, over the kept steps from `oldest` on and those of its stream in the chunk."""
    past, step = len(kept), line // rows
    query = projected[line, head : head + dim]
    scale = out.dtype.type(1) / np.sqrt(out.dtype.type(dim))
    count = 0
    for at in range(oldest, past):
        scores[count] = _dot(query, kept[at, head : head + dim]) * scale
        count += 1
    first = max(0, step - past)
    for at in range(first, step + 1):
        key = projected[line - (step - at) * rows, width + head : width + head + dim]
        scores[count] = _dot(query, key) * scale
        count += 1
    highest = scores[0]
    for n in range(1, count):
        highest = max(highest, scores[n])
    total = out.dtype.type(0)
    for n in range(count):
        scores[n] = np.exp(scores[n] - highest)
        total += scores[n]
    result = out[head : head + dim]
    result[:] = 0
    count = 0
    for at in range(oldest, past):
        _add_scaled(kept[at, width + head : width + head + dim], scores[count] / total, result)
        count += 1
    for at in range(first, step + 1):
        value = projected[line - (step - at) * rows, 2 * width + head : 2 * width + head + dim]
        _add_scaled(value, scores[count] / total, result)
        count += 1


@jit_fast_sums
def _dot(x: Array, y: Array) -> float:
    total = x.dtype.type(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total  # type: ignore[no-any-return]


@jit_fast_sums
def _add_scaled(x: Array, factor: float, out: Array) -> None:
    for i in range(len(out)):
        out[i] += x[i] * factor


@jit_fast_sums
def _keep_newest(projected: Array, width: int, kept: Array) -> None:
    """Moves the keys and values of a stream's new steps into `kept`, whose last line is the newest step."""
    steps, past = len(projected), len(kept)
    for at in range(past - steps):
        copy_line(kept[at + steps], kept[at])
    for at in range(max(0, past - steps), past):
        copy_line(projected[steps - past + at, width : 3 * width], kept[at])


@jit_fast_sums
def _add(x: Array, update: Array) -> None:
    for line in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[line, i] += update[line, i]


def _norm_in_place(x: Array, eps: float) -> None:
    """Applies the RMS norm to each line of `x`."""
    rms_norm_lines(x, eps, x)


windowed_layer = Kernel(_windowed_layer)
norm_in_place = Kernel(_norm_in_place)
