"""What the GPU allows the kernels: the only place that asks for its capability and its shared memory."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from voxgate.codecs.neural.cuda.tiles import ANY_CHIP, ChipLimits

from ..errors import EngineError

if TYPE_CHECKING:
    import torch

LIMITS_VARIABLE = "VOXGATE_GPU_LIMITS"
"""For development: the limits of a smaller chip, "8.9:101376", which the kernels then keep on any GPU."""

_MAJOR, _MINOR, _SHARED_OPTIN = 75, 76, 97
"""Values of CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ..._MINOR and ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN."""


def chip_limits(device: torch.device | int | None = None) -> ChipLimits:
    """The limits of a GPU, by default the current one; `ANY_CHIP` without a GPU. Raises EngineError as `lowered`."""
    import torch

    if not torch.cuda.is_available():
        return ANY_CHIP
    properties: Any = torch.cuda.get_device_properties(device)  # torch's types lack the field
    chip = ChipLimits((properties.major, properties.minor), properties.shared_memory_per_block_optin)
    return lowered(chip, os.environ.get(LIMITS_VARIABLE))


def chip_of_driver() -> ChipLimits:
    """The limits of the first visible GPU by its driver, without the context that PyTorch would make on it.

    Raises OSError without a driver, EngineError without a GPU.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    device, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        raise EngineError("the NVIDIA driver reports no GPU")

    def attribute(number: int) -> int:
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    return ChipLimits((attribute(_MAJOR), attribute(_MINOR)), attribute(_SHARED_OPTIN))


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
