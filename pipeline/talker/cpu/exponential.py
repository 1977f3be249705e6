"""An exponential function that vectorises."""

from __future__ import annotations

import numpy as np
from voxgate.codecs.neural.cpu.jit import jit


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
