"""What a humming gateway hums: a note for each character, as samples or as Opus."""

from __future__ import annotations

import math
from array import array

OPUS_PRE_SKIP = 156
"""At 24 kHz."""


def tone(index: int, samples: int, rate: int) -> array[int]:
    """A soft note, a step up or down a scale for each character."""
    frequency = 220 * 2 ** ([0, 4, 7, 12, 7, 4][index % 6] / 12)
    fade = samples // 4
    return array(
        "h",
        (
            int(6000 * min(1, i / fade, (samples - i) / fade) * math.sin(2 * math.pi * frequency * i / rate))
            for i in range(samples)
        ),
    )


class Coder:
    """Pcm as it is, or an Opus packet a message when the machine has libopus."""

    def __init__(self, codec: str, rate: int) -> None:
        self._encoder = None
        self.pre_skip = 0
        if codec == "opus":
            import opuslib

            self._encoder = opuslib.Encoder(rate, 1, opuslib.APPLICATION_AUDIO)
            self.pre_skip = OPUS_PRE_SKIP * rate // 24_000

    def encode(self, pcm: array[int]) -> bytes:
        return self._encoder.encode(pcm.tobytes(), len(pcm)) if self._encoder else pcm.tobytes()
