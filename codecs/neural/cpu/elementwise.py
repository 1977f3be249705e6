"""Passes over lines of numbers, [lines, width], inside compiled functions.

Parameters of a channel are repeated, so that one short loop covers several lines of few channels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .jit import jit
from .panels import Array

SQRT_HALF = 0.5**0.5


def squared_sine(x: Any) -> Any:
    """sin^2(x) in the precision of `x`; of float32 with an error of 2e-7 up to |x| of 1e4."""
    raise NotImplementedError("only compiled functions call it")


def _squared_sine_32(x: Any) -> Any:
    # Adding 1.5 * 2^23 rounds to an integer. sin^2 has the period pi; its three parts keep the difference exact.
    periods = x * np.float32(0.31830988618) + np.float32(12582912.0) - np.float32(12582912.0)
    x = x - periods * np.float32(3.140625)
    x = x - periods * np.float32(9.670257568359375e-4)
    x = x - periods * np.float32(6.2771141529083252e-7)
    # The sine from -pi/2 to pi/2: its Taylor series with coefficients fitted to that range.
    square = x * x
    y = np.float32(2.6083159810e-6)
    y = y * square - np.float32(1.9810690719e-4)
    y = y * square + np.float32(8.3330785856e-3)
    y = y * square - np.float32(1.6666659713e-1)
    sine = x + x * square * y
    return sine * sine


def _squared_sine_64(x: Any) -> Any:
    sine = np.float64(math.sin(x))
    return sine * sine


@overload(squared_sine, inline="always")  # type: ignore[untyped-decorator]
def _squared_sine_of(x: Any) -> Any:
    return _squared_sine_32 if x == types.float32 else _squared_sine_64


def error_function(x: Any) -> Any:
    """erf(x) in the precision of `x`; of float32 with an error of 3e-7. Vectorises, unlike the one of libm."""
    raise NotImplementedError("only compiled functions call it")


def _error_function_32(x: Any) -> Any:
    # The rational function of Eigen and XLA; beyond 4, erf is 1 in float32.
    x = np.float32(-4.0) if x < np.float32(-4.0) else x
    x = np.float32(4.0) if x > np.float32(4.0) else x
    square = x * x
    above = np.float32(-2.72614225801306e-10)
    above = above * square + np.float32(2.77068142495902e-08)
    above = above * square - np.float32(2.10102402082508e-06)
    above = above * square - np.float32(5.69250639462346e-05)
    above = above * square - np.float32(7.34990630326855e-04)
    above = above * square - np.float32(2.95459980854025e-03)
    above = above * square - np.float32(1.60960333262415e-02)
    below = np.float32(-1.45660718464996e-05)
    below = below * square - np.float32(2.13374055278905e-04)
    below = below * square - np.float32(1.68282697438203e-03)
    below = below * square - np.float32(7.37332916720468e-03)
    below = below * square - np.float32(1.42647390514189e-02)
    return x * above / below


def _error_function_64(x: Any) -> Any:
    return math.erf(x)


@overload(error_function, inline="always")  # type: ignore[untyped-decorator]
def _error_function_of(x: Any) -> Any:
    return _error_function_32 if x == types.float32 else _error_function_64


@jit
def add_bias_and_gelu(x: Array, lines: int, bias: Array) -> None:
    """Adds `bias` to the first columns of each line, and maps them to x * (1 + erf(x / sqrt(2))) / 2, in place."""
    half, sqrt_half = x.dtype.type(0.5), x.dtype.type(SQRT_HALF)
    for line in range(lines):
        part = x[line, : len(bias)]
        for i in range(len(part)):
            value = part[i] + bias[i]
            part[i] = half * value + half * value * error_function(value * sqrt_half)


@jit
def activate(x: Array, first: int, lines: int, frequency: Array, gain: Array, out: Array, out_first: int) -> None:
    """Writes x + gain * sin^2(frequency * x) of `lines` lines of `x`, from `first` on, to other memory, `out`."""
    width = x.shape[1]
    source = x.reshape(-1)[first * width : (first + lines) * width]
    target = out.reshape(-1)[out_first * width : (out_first + lines) * width]
    at = 0
    while at < len(source):
        part, written = source[at : at + len(gain)], target[at : at + len(gain)]
        for i in range(len(part)):
            value = part[i]
            written[i] = value + gain[i] * squared_sine(value * frequency[i])
        at += len(gain)


# Separate from `activate`, because the loop is vectorised only if the arrays written and read are known to be the same.
@jit
def add_bias_and_activate(x: Array, lines: int, bias: Array, frequency: Array, gain: Array) -> None:
    """Adds `bias` to the first `lines` lines and activates them, in place."""
    numbers = x.reshape(-1)[: lines * x.shape[1]]
    at = 0
    while at < len(numbers):
        part = numbers[at : at + len(gain)]
        for i in range(len(part)):
            value = part[i] + bias[i]
            part[i] = value + gain[i] * squared_sine(value * frequency[i])
        at += len(gain)


@jit
def add_lines(x: Array, first: int, lines: int, update: Array, bias: Array) -> None:
    """Adds the first `lines` lines of `update`, which may be wider, and `bias` to `x` from line `first` on."""
    width = x.shape[1]
    if width == update.shape[1]:
        target = x.reshape(-1)[first * width : (first + lines) * width]
        source = update.reshape(-1)[: lines * width]
        at = 0
        while at < len(target):
            part, added = target[at : at + len(bias)], source[at : at + len(bias)]
            for i in range(len(part)):
                part[i] += added[i] + bias[i]
            at += len(bias)
        return
    for line in range(lines):
        for i in range(width):
            x[first + line, i] += update[line, i] + bias[i]


@jit
def copy_line(x: Array, out: Array) -> None:
    """out[:] = x. Assigning a slice would compile a check of shapes, which takes seconds."""
    for i in range(len(out)):
        out[i] = x[i]


@jit
def copy_lines(x: Array, out: Array, first: int) -> None:
    """Copies all lines of `x` to `out`, from line `first` on."""
    for line in range(x.shape[0]):
        copy_line(x[line], out[first + line])


@jit
def load_history(history: Array, slots: Array, offset: int, reach: int, buffer: Array) -> None:
    """Copies the last `reach` inputs of each stream to the beginning of `buffer`, [>= reach * rows, width]."""
    width = buffer.shape[1]
    for row in range(len(slots)):
        for step in range(reach):
            start = offset + step * width
            copy_line(history[slots[row], start : start + width], buffer[step * len(slots) + row])


@jit
def store_history(history: Array, slots: Array, offset: int, reach: int, buffer: Array) -> None:
    """Keeps the last `reach` steps of `buffer` for each stream."""
    width, first = buffer.shape[1], buffer.shape[0] - reach * len(slots)
    for row in range(len(slots)):
        for step in range(reach):
            start = offset + step * width
            copy_line(buffer[first + step * len(slots) + row], history[slots[row], start : start + width])
