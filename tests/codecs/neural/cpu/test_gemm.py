from __future__ import annotations

import numpy as np
import pytest
import torch
from voxgate.codecs.neural.cpu.gemm import TILE_LINES, multiply
from voxgate.codecs.neural.cpu.panels import PANEL, PanelMatrix, repeated_parameters

LINES = (1, 2, 3, 4, 5, TILE_LINES - 1, TILE_LINES, 2 * TILE_LINES + 7)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, PANEL, 2 * PANEL + 3, 4 * PANEL])
@pytest.mark.parametrize("depth", [3, 8, 33])
def test_products_of_any_size_equal_torch(dtype: torch.dtype, width: int, depth: int) -> None:
    x, w = random(max(LINES) + 1, depth).to(dtype), random(depth, width).to(dtype)
    expected = x.double() @ w.double()
    panels = PanelMatrix.of(w).panels
    for lines in LINES:
        out = np.full((lines + 1, len(panels) * PANEL), np.nan, x.numpy().dtype)
        multiply(x.numpy(), 1, lines, 1, 0, depth, panels, out)
        tolerance = 1e-5 if dtype is torch.float32 else 1e-13
        np.testing.assert_allclose(out[:lines, :width], expected[1 : lines + 1], rtol=tolerance, atol=tolerance)
        assert np.isnan(out[lines]).all()


def test_taps_equal_a_convolution() -> None:
    """Of inputs that are wider than the depth, three lines apart."""
    x, w = random(20, 9), random(4, 5, 18)
    out = np.empty((8, 2 * PANEL))
    multiply(x.numpy(), 2, 8, 4, 3, 5, PanelMatrix.of(w.flatten(0, 1)).panels, out)
    expected = sum(x[2 + 3 * tap : 10 + 3 * tap, :5] @ w[tap] for tap in range(4))
    np.testing.assert_allclose(out[:, :18], expected, rtol=1e-12)


def test_line_does_not_depend_on_its_tile() -> None:
    x, w = random(2 * TILE_LINES + 7, 70).float().numpy(), PanelMatrix.of(random(70, 3 * PANEL).float())
    together = np.empty((len(x), 3 * PANEL), np.float32)
    multiply(x, 0, len(x), 1, 0, 70, w.panels, together)
    for line in range(len(x)):
        alone = np.empty((1, 3 * PANEL), np.float32)
        multiply(x, line, 1, 1, 0, 70, w.panels, alone)
        assert np.array_equal(alone[0], together[line])


@pytest.mark.parametrize("width", [1, PANEL, 2 * PANEL + 3])
def test_matrix_is_returned_from_its_panels(width: int) -> None:
    matrix = random(7, width)
    packed = PanelMatrix.of(matrix.t().contiguous().t())
    assert packed.panels.shape == (-(-width // PANEL), 7, PANEL)
    assert torch.equal(packed.dense(), matrix)


def test_parameters_are_repeated_for_whole_lines() -> None:
    first, second = repeated_parameters(torch.arange(3.0), torch.ones(3), pad=True)
    assert len(first) == len(second) == 512
    assert first[: PANEL + 4].tolist() == [0.0, 1.0, 2.0] + [0.0] * 14 + [1.0, 2.0, 0.0]
    (wide,) = repeated_parameters(torch.ones(1000))
    assert len(wide) == 1000
