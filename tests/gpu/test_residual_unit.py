"""The fused residual unit against the same computation in PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.layers import ConvWeights, LayerInput, ResidualUnitWeights
from voxgate.pipeline.codec.residual_unit import SOURCE, TAPS, UNIT_TILINGS, FusedResidualUnits, UnitTiling, unit_source
from voxgate.pipeline.cuda.nvrtc import CudaKernel, Launch

from .conftest import HAS_GPU
from .cuda_on_cpu import cpu_launch

BLOCKS, REPETITIONS = 3, 50


def launch_for(tiling: UnitTiling, folder: Path, order: int) -> Launch:
    if HAS_GPU:
        return CudaKernel(unit_source(tiling), tiling.shared_bytes()).launch
    return cpu_launch(SOURCE, {**tiling.macros(), "BLOCKS": BLOCKS}, folder, order)


def reference_unit(unit: ResidualUnitWeights, source: Tensor, residual: Tensor) -> Tensor:
    """The unit's sum in float32, [steps, rows, channels]; `source`: [reach + steps, rows, channels]."""
    conv, point = unit.conv, unit.pointwise
    taps = [source[tap * conv.dilation : tap * conv.dilation + len(residual)] for tap in range(conv.taps)]
    inner = torch.cat(taps, 2).float() @ conv.weight.float() + conv.bias
    inner = snake(inner, point.input.snake).to(source.dtype).float()
    return inner @ point.weight.float() + point.bias + residual.float()


def snake(x: Tensor, wave: tuple[Tensor, Tensor] | None) -> Tensor:
    assert wave is not None
    frequency, gain = wave
    return x + gain * torch.sin(x * frequency) ** 2


@pytest.mark.parametrize("tiling", UNIT_TILINGS, ids=lambda tiling: str(tiling.channels))
@pytest.mark.parametrize(
    ("steps", "rows", "dilation", "order"),
    [(20, 16, 1, 0), (37, 8, 3, 1), (15, 8, 9, 2), (150, 24, 1, 0), (300, 64, 9, 0)],
)
def test_fused_unit_equals_convolution_product_and_snakes(
    device: torch.device, tmp_path: Path, tiling: UnitTiling, steps: int, rows: int, dilation: int, order: int
) -> None:
    if not HAS_GPU and steps > 100:
        pytest.skip("too slow without a GPU")
    channels = tiling.channels
    generator = torch.Generator().manual_seed(dilation)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(device)

    def random_snake() -> tuple[Tensor, Tensor]:
        return random(channels, scale=0.5).exp(), random(channels, scale=0.3).exp()

    reach, history_steps = (TAPS - 1) * dilation, 5
    taps = random(TAPS * channels, channels, scale=0.4 * channels**-0.5)
    point = random(channels, channels, scale=channels**-0.5)
    unit = ResidualUnitWeights(
        ConvWeights(
            LayerInput(channels, reach, snake=random_snake()),
            taps.half(),
            random(channels),
            TAPS,
            dilation,
            1,
            channels,
        ),
        ConvWeights(LayerInput(channels, snake=random_snake()), point.half(), random(channels), 1, 1, 1, channels),
    )
    next_input = LayerInput(channels, history_steps, snake=random_snake())
    source, residual = random(reach + steps, rows, channels).half(), random(steps, rows, channels).half()
    output = torch.full((history_steps + steps, rows, channels), 7.0, dtype=torch.float16, device=device)

    expected = reference_unit(unit, source, residual)

    processors = torch.cuda.get_device_properties(0).multi_processor_count if HAS_GPU else BLOCKS
    fused = FusedResidualUnits({tiling: launch_for(tiling, tmp_path, order)}, processors)(unit, next_input)
    assert fused is not None
    initial = residual.clone()
    fused(source, residual, output)
    for _ in range(REPETITIONS if HAS_GPU else 0):
        # The result must not depend on the order of the warps.
        residual_again, output_again = initial.clone(), torch.empty_like(output)
        fused(source, residual_again, output_again)
        assert torch.equal(residual_again, residual)
        assert torch.equal(output_again[history_steps:], output[history_steps:])
    assert torch.allclose(residual.float(), expected, rtol=2e-3, atol=1e-2)
    assert torch.allclose(output[history_steps:].float(), snake(expected, next_input.snake), rtol=4e-3, atol=3e-2)
    assert bool((output[:history_steps] == 7).all())
