"""What the GPU allows the kernels: the only place that asks for its capability and its shared memory."""

from __future__ import annotations

import os
from typing import Any

import torch
from voxgate.codecs.neural.cuda.tiles import ANY_CHIP, ChipLimits

from ..errors import EngineError

LIMITS_VARIABLE = "VOXGATE_GPU_LIMITS"
"""For development: the limits of a smaller chip, "8.9:101376", which the kernels then keep on any GPU."""


def chip_limits(device: torch.device | int | None = None) -> ChipLimits:
    """The limits of a GPU, by default the current one; `ANY_CHIP` without a GPU. Raises EngineError as `lowered`."""
    if not torch.cuda.is_available():
        return ANY_CHIP
    properties: Any = torch.cuda.get_device_properties(device)  # torch's types lack the field
    chip = ChipLimits((properties.major, properties.minor), properties.shared_memory_per_block_optin)
    return lowered(chip, os.environ.get(LIMITS_VARIABLE))


def lowered(chip: ChipLimits, limits: str | None) -> ChipLimits:
    """`chip` without what a smaller chip lacks: `limits` is its capability, a colon, and its shared memory in bytes.

    Raises EngineError when `limits` has another form.
    """
    if not limits:
        return chip
    try:
        capability, shared = limits.split(":")
        major, minor = capability.split(".")
        smaller = ChipLimits((int(major), int(minor)), int(shared))
    except ValueError as error:
        raise EngineError(f'{LIMITS_VARIABLE} must be like "8.9:101376", got {limits!r}') from error
    return ChipLimits(min(chip.capability, smaller.capability), min(chip.shared_bytes, smaller.shared_bytes))
