"""What an encoder puts out, and the shape of the encoders behind `encode.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Packet:
    """One message's audio in the client's format; `samples` is what a decoder puts out for it."""

    payload: bytes
    samples: int


class Coder(Protocol):
    """Codes audio that is cut and at the format's rate already. Not thread-safe."""

    pre_skip: int
    """Samples at the format's rate that a decoder puts out before the audio begins."""

    def encode(self, pcm: Pcm) -> list[Packet]:
        """Code a full packet's worth, float32 [packet_samples]."""

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:
        """Code the rest, less than a packet; `true_samples` is the length of it all. Not called when that is 0."""
