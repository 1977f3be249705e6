"""How the loops of the code predictor are compiled, and an exponential function that vectorises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile with numba when compiled code calls it; sums keep their order."""
    return cast(Function, numba.njit(fastmath={"contract"}, error_model="numpy", boundscheck=False)(function))


def jit_fast_sums(function: Function) -> Function:
    """As `jit`, but sums may be split over the lanes of a vector register; NaN and infinity keep their meaning."""
    options = {"reassoc", "contract", "nsz"}
    return cast(Function, numba.njit(fastmath=options, error_model="numpy", boundscheck=False)(function))


@jit
def exp(x: np.float32) -> np.float32:
    """e^x with a relative error of 1e-7, for x in [-87, 88] (Cephes' expf, which vectorises unlike libm's)."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    x = np.float32(88.0) if x > np.float32(88.0) else x
    # Adding 1.5 * 2^23 rounds to an integer, which is then in the lowest bits.
    shifted = x * np.float32(1.44269504088896341) + np.float32(12582912.0)
    whole = shifted - np.float32(12582912.0)
    x = x - whole * np.float32(0.693359375)
    x = x - whole * np.float32(-2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * x + np.float32(1.3981999507e-3)
    y = y * x + np.float32(8.3334519073e-3)
    y = y * x + np.float32(4.1665795894e-2)
    y = y * x + np.float32(1.6666665459e-1)
    y = y * x + np.float32(5.0000001201e-1)
    y = y * (x * x) + x + np.float32(1.0)
    power = (np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)
    return y * np.int32(power).view(np.float32)
