from __future__ import annotations

import pytest
import torch
from torch import Tensor
from voxgate.codecs.neural.snake import Snake

CHANNELS, STEPS = 24, 40
"""Rows of 24 channels are joined to lines of 480."""


def exact(x: Tensor, frequency: Tensor, gain: Tensor) -> Tensor:
    return x.double() + gain.double() * (x * frequency).double().sin().square()


@pytest.fixture
def parameters() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.rand(CHANNELS, generator=generator) * 8, torch.rand(CHANNELS, generator=generator) + 0.1


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1000.0])
@pytest.mark.parametrize("in_place", [False, True])
def test_activation_is_exact_to_rounding(parameters: tuple[Tensor, Tensor], scale: float, in_place: bool) -> None:
    x = torch.randn(3 * STEPS, 2, CHANNELS, generator=torch.Generator().manual_seed(1)) * scale
    expected = exact(x, *parameters)
    out = x if in_place else torch.full_like(x, torch.nan)
    Snake(*parameters, STEPS)(x, out=out)
    assert (out - expected).abs().max() <= 4e-7 * max(scale * 4, 1)


def test_small_inputs_keep_their_relative_precision() -> None:
    """A gain of a million amplifies what the squared sine of a small number loses."""
    frequency, gain = torch.ones(CHANNELS), torch.full((CHANNELS,), 1e6)
    x = torch.linspace(1e-4, 1e-3, STEPS * CHANNELS).view(STEPS, 1, CHANNELS)
    out = torch.empty_like(x)
    Snake(frequency, gain, STEPS)(x, out=out)
    torch.testing.assert_close(out.double(), exact(x, frequency, gain), rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_is_not_hidden(parameters: tuple[Tensor, Tensor], value: float) -> None:
    x = torch.zeros(STEPS, 1, CHANNELS)
    x[7, 0, 3] = value
    Snake(*parameters, STEPS)(x, out=x)
    assert not x[7, 0, 3].isfinite()
    assert x.isfinite().sum() == x.numel() - 1
