"""From the codec's audio to the packets of the format a client asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .format import SOURCE_RATE_HZ, AudioFormat
from .opus import OpusEncoder
from .pcm import encode_s16le
from .resample import Resampler

Pcm = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Packet:
    """One message's audio: an Opus packet or s16le; `samples` is what a decoder puts out for it."""

    payload: bytes
    samples: int


class PacketEncoder:
    """Codes one utterance: 24 kHz float in, packets of the client's format out. Not thread-safe.

    Of what a decoder puts out, samples [pre_skip, pre_skip + true_samples) are exactly the audio.
    """

    def __init__(self, audio_format: AudioFormat) -> None:
        """Raises OpusUnavailable when Opus is asked for without libopus."""
        self.format = audio_format
        self._resampler = Resampler(SOURCE_RATE_HZ, audio_format.sample_rate_hz)
        self._opus = (
            OpusEncoder(audio_format.sample_rate_hz, audio_format.bitrate, audio_format.packet_samples)
            if audio_format.codec == "opus"
            else None
        )
        self._waiting: Pcm = np.zeros(0, np.float32)
        self._packets = 0
        self.true_samples = 0
        """Samples of audio at the format's rate so far; after `finish`, of the whole utterance."""

    @property
    def pre_skip(self) -> int:
        """Samples to drop at the start of what the decoder puts out, at the format's rate."""
        return self._opus.pre_skip_samples if self._opus else 0

    def push(self, pcm: Pcm) -> list[Packet]:
        """Take in a chunk (float32 [n], 24 kHz) and return the packets that are full."""
        return self._take(self._resampler.push(pcm))

    def finish(self) -> list[Packet]:
        """The rest: a last PCM packet may be short, the last Opus packets are filled up with silence."""
        packets = self._take(self._resampler.finish())
        if self._opus is None:
            if len(self._waiting):
                packets.append(Packet(encode_s16le(self._waiting), len(self._waiting)))
        elif self.true_samples:
            size = self._opus.packet_samples
            padding = -(len(self._waiting) + self.pre_skip) % size + self.pre_skip
            packets += self._full(np.concatenate([self._waiting, np.zeros(padding, np.float32)]))
        self._waiting = self._waiting[:0]
        return packets

    def _take(self, pcm: Pcm) -> list[Packet]:
        self.true_samples += len(pcm)
        return self._full(np.concatenate([self._waiting, pcm]) if len(self._waiting) else pcm)

    def _full(self, pcm: Pcm) -> list[Packet]:
        packets = []
        at = 0
        while (end := at + self._next_size()) <= len(pcm):
            part = pcm[at:end]
            packets.append(Packet(self._opus.encode(part) if self._opus else encode_s16le(part), len(part)))
            self._packets += 1
            at = end
        self._waiting = pcm[at:].copy()
        return packets

    def _next_size(self) -> int:
        rate, ms, n = self.format.sample_rate_hz, self.format.packet_ms, self._packets
        return (n + 1) * rate * ms // 1000 - n * rate * ms // 1000
