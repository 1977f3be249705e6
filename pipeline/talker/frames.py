"""What the engine reports of each step: one record per session that produced a frame or ended."""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

HEADER = 4
"""Columns before the codes: slot, epoch, frame number, flags."""


class FrameFlag(IntFlag):
    """How a record is to be read."""

    END = 1
    """Speech ended; the record carries no frame."""
    CAPPED = 2
    """It was ended by force, at the frame cap."""


Records = NDArray[np.int32]
"""int32 [n, HEADER + groups]"""


def unpack(message: bytes, groups: int) -> Records:
    """The records of one step's message."""
    return np.frombuffer(message, np.int32).reshape(-1, HEADER + groups)
