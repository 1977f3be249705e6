"""From the codec's audio to the packets of the format a client asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .opus import OPUS_RATES_HZ, OpusEncoder
from .pcm import encode_s16le
from .resample import Resampler

SOURCE_RATE_HZ = 24_000
"""The rate the neural codec speaks at."""

CodecName = Literal["opus", "pcm"]
PCM_RATES_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
BITRATES = (6_000, 256_000)
"""Opus: least and most, in bit/s."""
PACKETS_MS = (80, 40, 20)

FORMATS: dict[str, dict[str, Any]] = {
    "opus": {"sample_rate": OPUS_RATES_HZ, "bitrate": BITRATES, "packet_ms": PACKETS_MS},
    "pcm": {"sample_rate": PCM_RATES_HZ, "packet_ms": PACKETS_MS},
}
"""What is offered, as told to clients."""

Pcm = NDArray[np.float32]


class FormatError(ValueError):
    """An audio format that is not offered; the message lists what is, `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How audio is coded for the client. Raises FormatError for what is not offered; `bitrate` is Opus's
    alone.
    """

    codec: CodecName = "opus"
    sample_rate_hz: int = SOURCE_RATE_HZ
    bitrate: int = 32_000
    packet_ms: int = 80

    def __post_init__(self) -> None:
        if self.codec not in get_args(CodecName):
            raise FormatError(f"codec {self.codec!r} is not offered; there are opus and pcm", "codec")
        rates = OPUS_RATES_HZ if self.codec == "opus" else PCM_RATES_HZ
        _require(self.sample_rate_hz, rates, f"{self.codec} sample_rate", "sample_rate")
        _require(self.packet_ms, PACKETS_MS, "packet_ms", "packet_ms")
        least, most = BITRATES
        if self.codec == "opus" and not least <= self.bitrate <= most:
            raise FormatError(f"bitrate {self.bitrate} is not within {least} to {most} bit/s", "bitrate")

    @property
    def packet_samples(self) -> int:
        """Samples of a full packet (pcm at 11025 Hz in packets of 20 ms: one more in every second)."""
        return self.sample_rate_hz * self.packet_ms // 1000


def _require(value: int, offered: tuple[int, ...], what: str, param: str) -> None:
    if value not in offered:
        raise FormatError(f"{what} {value} is not offered; there are {', '.join(map(str, offered))}", param)


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
