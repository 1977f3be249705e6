"""How a Triton kernel overlaps with the one before it: programmatic dependent launch, where the GPU has it (EARLY)."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def pdl_launch(EARLY: tl.constexpr):
    """Let the next kernel pdl_launch."""
    if EARLY:
        cuda.gdc_launch_dependents()


@triton.jit
def pdl_wait(EARLY: tl.constexpr):
    """Until the kernels before this one have ended."""
    if EARLY:
        cuda.gdc_wait()
