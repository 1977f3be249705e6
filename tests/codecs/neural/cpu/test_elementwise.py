from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from voxgate.codecs.neural.cpu.elementwise import (
    activate,
    add_bias_and_activate,
    add_bias_and_gelu,
    add_lines,
    load_history,
    store_history,
)

CHANNELS, LINES = 24, 45
REPEATS = 7
"""Parameters are repeated for seven lines, so the last loop is shorter."""

Floats = NDArray[np.floating]


def exact(x: Floats, frequency: Floats, gain: Floats) -> Floats:
    """The sine's argument is rounded as the input is."""
    return x.astype(np.float64) + gain * np.sin((x * frequency).astype(np.float64)) ** 2


@pytest.fixture
def parameters() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(4)
    frequency, gain = rng.random((2, CHANNELS), np.float32) * np.float32([[8], [1]])
    return frequency, gain + np.float32(0.1)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1000.0])
def test_activation_is_exact_to_rounding(parameters: tuple[Floats, Floats], scale: float) -> None:
    x = np.random.default_rng(1).standard_normal((LINES, CHANNELS), np.float32) * np.float32(scale)
    out = np.full((LINES + 2, CHANNELS), 7, np.float32)
    activate(x, 1, LINES - 1, *(np.tile(values, REPEATS) for values in parameters), out, 2)
    assert np.abs(out[2:-1] - exact(x[1:], *parameters)).max() <= 4e-7 * max(scale * 4, 1)
    assert (out[:2] == 7).all()
    assert (out[-1] == 7).all()


def test_activation_in_double_precision_has_its_precision(parameters: tuple[Floats, Floats]) -> None:
    x = np.random.default_rng(1).standard_normal((LINES, CHANNELS))
    frequency, gain = (values.astype(np.float64) for values in parameters)
    out = np.empty_like(x)
    activate(x, 0, LINES, frequency, gain, out, 0)
    np.testing.assert_allclose(out, exact(x, frequency, gain), atol=1e-14)


def test_bias_is_added_before_the_activation(parameters: tuple[Floats, Floats]) -> None:
    rng = np.random.default_rng(2)
    x, bias = rng.standard_normal((LINES, CHANNELS), np.float32), rng.random(CHANNELS, np.float32)
    expected = exact(x[:-1] + bias, *parameters)
    last = x[-1].copy()
    add_bias_and_activate(x, LINES - 1, *(np.tile(values, REPEATS) for values in (bias, *parameters)))
    assert np.abs(x[:-1] - expected).max() <= 2e-6
    assert np.array_equal(x[-1], last)


def test_small_inputs_keep_their_relative_precision() -> None:
    """A gain of a million amplifies what the squared sine of a small number loses."""
    frequency, gain = np.ones(CHANNELS, np.float32), np.full(CHANNELS, 1e6, np.float32)
    x = np.linspace(1e-4, 1e-3, LINES * CHANNELS, dtype=np.float32).reshape(LINES, CHANNELS)
    out = np.empty_like(x)
    activate(x, 0, LINES, frequency, gain, out, 0)
    np.testing.assert_allclose(out, exact(x, frequency, gain), rtol=1e-6)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_not_hidden(parameters: tuple[Floats, Floats], value: float) -> None:
    x = np.zeros((LINES, CHANNELS), np.float32)
    x[7, 3] = value
    add_bias_and_activate(x, LINES, np.zeros(CHANNELS, np.float32), *parameters)
    assert not np.isfinite(x[7, 3])
    assert np.isfinite(x).sum() == x.size - 1


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 6e-7), (np.float64, 1e-15)])
def test_gelu_is_exact_to_rounding(dtype: type[Floats], error: float) -> None:
    bias = np.linspace(-7, 7, 801).astype(dtype)
    x = np.zeros((2, 810), dtype)
    add_bias_and_gelu(x, 1, bias)
    expected = [0.5 * value * (1 + math.erf(value * math.sqrt(0.5))) for value in bias.astype(np.float64)]
    np.testing.assert_allclose(x[0, :801], expected, atol=error, rtol=error)
    assert not x[0, 801:].any()
    assert not x[1].any()


@pytest.mark.parametrize("padding", [0, 8])
def test_lines_are_added_from_a_line_on(padding: int) -> None:
    rng = np.random.default_rng(3)
    x, bias = rng.random((LINES, CHANNELS)), rng.random(CHANNELS)
    update = rng.random((4, CHANNELS + padding))
    expected = x.copy()
    expected[5:8] += update[:3, :CHANNELS] + bias
    add_lines(x, 5, 3, update, np.tile(np.pad(bias, (0, padding)), 2))
    np.testing.assert_allclose(x, expected)


def test_history_returns_what_it_kept_of_each_stream() -> None:
    rng = np.random.default_rng(5)
    history, slots = np.zeros((4, 30)), np.array([3, 1])
    steps = rng.random((5 * 2, 4))
    store_history(history, slots, 6, 3, steps)
    buffer = np.zeros((8, 4))
    load_history(history, slots, 6, 3, buffer)
    assert np.array_equal(buffer[:6], steps[4:])
    assert not buffer[6:].any()
    assert not history[[0, 2]].any()
    assert not history[:, :6].any()
    assert not history[:, 18:].any()
    assert np.array_equal(history[3, 6:10], steps[4])
