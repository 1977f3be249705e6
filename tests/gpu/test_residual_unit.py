"""A residual unit as one kernel against the same maths written plainly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.layers import ConvWeights, LayerInput, ResidualUnitWeights
from voxgate.pipeline.codec.residual_unit import SOURCE, TAPS, UNIT_TILINGS, FusedResidualUnits, UnitTiling
from voxgate.pipeline.cuda.nvrtc import CudaKernel, Launch

from .conftest import HAS_GPU
from .cuda_on_cpu import cpu_launch

BLOCKS, AGAIN = 3, 50


def launch_for(cut: UnitTiling, folder: Path, order: int) -> Launch:
    if HAS_GPU:
        return CudaKernel(SOURCE, cut.macros(), cut.shared_bytes()).launch
    return cpu_launch(SOURCE, {**cut.macros(), "BLOCKS": BLOCKS}, folder, order)


def plainly(unit: ResidualUnitWeights, source: Tensor, residual: Tensor) -> Tensor:
    """The unit's sum, in float32; `source` [reach + steps, rows, channels] and `residual` [steps, rows, channels]."""
    conv, point = unit.conv, unit.pointwise
    taps = [source[tap * conv.dilation : tap * conv.dilation + len(residual)] for tap in range(conv.taps)]
    inner = torch.cat(taps, 2).float() @ conv.weight.float() + conv.bias
    inner = snake(inner, point.input.snake).to(source.dtype).float()
    return inner @ point.weight.float() + point.bias + residual.float()


def snake(x: Tensor, wave: tuple[Tensor, Tensor] | None) -> Tensor:
    assert wave is not None
    frequency, gain = wave
    return x + gain * torch.sin(x * frequency) ** 2


@pytest.mark.parametrize("cut", UNIT_TILINGS, ids=lambda cut: str(cut.channels))
@pytest.mark.parametrize(
    ("steps", "rows", "dilation", "order"),
    [(20, 16, 1, 0), (37, 8, 3, 1), (15, 8, 9, 2), (150, 24, 1, 0), (300, 64, 9, 0)],
)
def test_a_unit_is_its_convolution_its_product_and_its_snakes(
    device: torch.device, tmp_path: Path, cut: UnitTiling, steps: int, rows: int, dilation: int, order: int
) -> None:
    if not HAS_GPU and steps > 100:
        pytest.skip("takes long without a GPU")
    channels = cut.channels
    generator = torch.Generator().manual_seed(dilation)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(device)

    def wave() -> tuple[Tensor, Tensor]:
        return random(channels, scale=0.5).exp(), random(channels, scale=0.3).exp()

    reach, room = (TAPS - 1) * dilation, 5
    taps = random(TAPS * channels, channels, scale=0.4 * channels**-0.5)
    point = random(channels, channels, scale=channels**-0.5)
    unit = ResidualUnitWeights(
        ConvWeights(
            LayerInput(channels, reach, snake=wave()), taps.half(), random(channels), TAPS, dilation, 1, channels
        ),
        ConvWeights(LayerInput(channels, snake=wave()), point.half(), random(channels), 1, 1, 1, channels),
    )
    ahead = LayerInput(channels, room, snake=wave())
    source, residual = random(reach + steps, rows, channels).half(), random(steps, rows, channels).half()
    onward = torch.full((room + steps, rows, channels), 7.0, dtype=torch.float16, device=device)

    expected = plainly(unit, source, residual)

    processors = torch.cuda.get_device_properties(0).multi_processor_count if HAS_GPU else BLOCKS
    whole = FusedResidualUnits({cut: launch_for(cut, tmp_path, order)}, processors)(unit, ahead)
    assert whole is not None
    begun = residual.clone()
    whole(source, residual, onward)
    for _ in range(AGAIN if HAS_GPU else 0):
        # Whatever order its warps have, the result is the same.
        again, behind = begun.clone(), torch.empty_like(onward)
        whole(source, again, behind)
        assert torch.equal(again, residual)
        assert torch.equal(behind[room:], onward[room:])
    assert torch.allclose(residual.float(), expected, rtol=2e-3, atol=1e-2)
    assert torch.allclose(onward[room:].float(), snake(expected, ahead.snake), rtol=4e-3, atol=3e-2)
    assert bool((onward[:room] == 7).all())
