"""Programmatic dependent launch in Triton: with PDL, a kernel starts while its predecessor still runs."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def pdl_launch(PDL: tl.constexpr):
    """Allow the next kernel of the stream to start."""
    if PDL:
        cuda.gdc_launch_dependents()


@triton.jit
def pdl_wait(PDL: tl.constexpr):
    """Wait until the previous kernels of the stream have ended and their writes are visible."""
    if PDL:
        cuda.gdc_wait()
