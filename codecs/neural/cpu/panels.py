"""Weights in the layout that compiled matrix products read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

PANEL = 16
"""Columns of a matrix that are stored together: two AVX registers of float32, or one of AVX-512."""

Array = NDArray[Any]
"""Floating-point numbers of the decoder's dtype."""


@dataclass(frozen=True, slots=True)
class PanelMatrix:
    """A matrix [depth, width] as panels, [width / PANEL rounded up, depth, PANEL], padded with zeros.

    A product reads each panel from its first number to its last.
    """

    panels: Array
    width: int

    @classmethod
    def of(cls, matrix: Tensor) -> PanelMatrix:
        """`matrix`: [depth, width]."""
        return cls(panel_array(matrix.unsqueeze(0))[0], matrix.shape[1])

    def dense(self) -> Tensor:
        """Returns the matrix [depth, width], contiguous."""
        columns = torch.from_numpy(self.panels).transpose(0, 1).flatten(1)
        return columns[:, : self.width].contiguous()


def panel_array(matrices: Tensor) -> Array:
    """Returns matrices [n, depth, width] as panels, [n, width / PANEL rounded up, depth, PANEL]."""
    count, depth, width = matrices.shape
    padded = F.pad(matrices, (0, -width % PANEL))
    # PyTorch aligns memory to cache lines, NumPy does not: no load crosses a line.
    return as_array(padded.view(count, depth, -1, PANEL).transpose(1, 2).contiguous())


def as_array(values: Tensor) -> Array:
    """Returns an array that shares the tensor's memory.

    A tensor of PyTorch's meta device has none (`pipeline/codec/gpu_launches.py`): the array's numbers are undefined.
    """
    array: Array = (torch.empty_like(values, device="cpu") if values.is_meta else values).numpy()
    return array


LINE = 512
"""Numbers in a loop over channels: channels of several lines are joined, because short loops are slow."""


def repeated_parameters(*parameters: Tensor, pad: bool = False) -> list[Array]:
    """Repeats parameters of channels, [channels] each, for as many lines as LINE has room for, at least one.

    `pad`: with zeros between the lines, as wide as the panels of a matrix with as many columns as channels.
    """
    channels = len(parameters[0])
    padding = -channels % PANEL if pad else 0
    repeats = max(1, LINE // (channels + padding))
    return [as_array(F.pad(values, (0, padding)).repeat(repeats)) for values in parameters]
