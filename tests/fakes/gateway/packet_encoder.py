"""A packet encoder without a codec: s16le at 24 kHz in packets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm


@dataclass(frozen=True, slots=True)
class FakePacket:
    payload: bytes
    samples: int


def s16le(pcm: Pcm) -> bytes:
    return np.rint(np.clip(pcm, -1, 1) * 32767).astype("<i2").tobytes()


class FakeEncoder:
    """Writes PCM even for Opus; the sample rate must be 24 kHz."""

    def __init__(self, audio_format: OutputFormat) -> None:
        assert audio_format.sample_rate_hz == SAMPLE_RATE_HZ
        self.pre_skip = 0
        self._format = audio_format
        self.true_samples = 0
        self._packet_samples = SAMPLE_RATE_HZ * audio_format.packet_ms // 1000
        self._held = np.zeros(0, np.float32)

    def renew(self) -> FakeEncoder:
        return FakeEncoder(self._format)

    def push(self, pcm: Pcm) -> list[FakePacket]:
        self.true_samples += len(pcm)
        self._held = np.concatenate([self._held, pcm])
        packets = []
        while len(self._held) >= self._packet_samples:
            packets.append(self._packet(self._held[: self._packet_samples]))
            self._held = self._held[self._packet_samples :]
        return packets

    def finish(self) -> list[FakePacket]:
        return [self._packet(self._held)] if len(self._held) else []

    @staticmethod
    def _packet(pcm: Pcm) -> FakePacket:
        return FakePacket(s16le(pcm), len(pcm))
