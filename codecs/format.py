"""The audio formats that clients can choose, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .pcm import SAMPLE_RATE_HZ

OPUS_RATES_HZ = (8000, 12000, 16000, 24000, 48000)
PCM_RATES_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
MP3_RATES_HZ = (16000, 22050, 24000, 32000, 44100, 48000)
G711_RATES_HZ = (8000, 16000)

OPUS_BITRATES = range(6_000, 256_001)
MP3_BITRATES = tuple(1000 * kbit for kbit in (32, 40, 48, 56, 64, 80, 96, 112, 128, 160))
MP3_BITRATES_FROM_32_KHZ = (*MP3_BITRATES, 192_000, 224_000, 256_000, 320_000)
DEFAULT_BITRATE = 32_000
PACKETS_MS = (80, 40, 20)
"""Packet durations: a whole codec frame or a fraction of one."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec's limits; `bitrates` is empty where the bit rate follows from the sample rate."""

    sample_rates_hz: tuple[int, ...]
    media_type: str
    bitrates: range | tuple[int, ...] = ()


CODECS: Mapping[str, Codec] = {
    "opus": Codec(OPUS_RATES_HZ, "audio/opus", OPUS_BITRATES),
    "pcm": Codec(PCM_RATES_HZ, "audio/pcm"),
    "pcm_f32": Codec(PCM_RATES_HZ, "audio/pcm"),
    "mulaw": Codec(G711_RATES_HZ, "audio/basic"),
    "alaw": Codec(G711_RATES_HZ, "audio/x-alaw-basic"),
    "ogg_opus": Codec(OPUS_RATES_HZ, "audio/ogg", OPUS_BITRATES),
    "mp3": Codec(MP3_RATES_HZ, "audio/mpeg", MP3_BITRATES_FROM_32_KHZ),
    "flac": Codec(PCM_RATES_HZ, "audio/flac"),
    "wav": Codec(PCM_RATES_HZ, "audio/wav"),
    "wav_f32": Codec(PCM_RATES_HZ, "audio/wav"),
    "wav_mulaw": Codec(G711_RATES_HZ, "audio/wav"),
    "wav_alaw": Codec(G711_RATES_HZ, "audio/wav"),
}
"""Codecs by the name that clients use."""


class FormatError(ValueError):
    """An audio format that is not offered; the message lists what is offered, `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How audio is encoded for a client; `bitrate`, in bits per second, is for Opus and MP3.

    Raises FormatError for values that are not offered.
    """

    codec: str = "opus"
    sample_rate_hz: int = SAMPLE_RATE_HZ
    bitrate: int = DEFAULT_BITRATE
    packet_ms: int = 80

    def __post_init__(self) -> None:
        if (codec := CODECS.get(self.codec)) is None:
            raise FormatError(f"codec {self.codec!r} is not offered; offered are {', '.join(CODECS)}", "codec")
        _require(self.sample_rate_hz, codec.sample_rates_hz, f"{self.codec} sample_rate", "sample_rate")
        _require(self.packet_ms, PACKETS_MS, "packet_ms", "packet_ms")
        if self.has_bitrate:
            low_mp3 = self.codec == "mp3" and self.sample_rate_hz < 32_000
            _require(self.bitrate, MP3_BITRATES if low_mp3 else codec.bitrates, f"{self.codec} bitrate", "bitrate")

    @property
    def has_bitrate(self) -> bool:
        return bool(CODECS[self.codec].bitrates)

    @property
    def media_type(self) -> str:
        """The Content-Type of an HTTP body in this format."""
        return CODECS[self.codec].media_type

    @property
    def packet_samples(self) -> int:
        """Samples of a full packet, rounded down; at 11,025 Hz every second packet of 20 ms has one more."""
        return self.sample_rate_hz * self.packet_ms // 1000


def _require(value: int, offered: range | tuple[int, ...], name: str, param: str) -> None:
    if value not in offered:
        listed = f"{offered[0]} to {offered[-1]}" if isinstance(offered, range) else ", ".join(map(str, offered))
        raise FormatError(f"{name} {value} is not offered; offered are {listed}", param)


def _describe(name: str, codec: Codec) -> dict[str, Any]:
    offer: dict[str, Any] = {"codec": name, "sample_rates": codec.sample_rates_hz}
    if codec.bitrates:
        offer["bitrate"] = {"min": codec.bitrates[0], "max": codec.bitrates[-1], "default": DEFAULT_BITRATE}
    return offer | {"packet_ms": PACKETS_MS}


FORMATS: tuple[dict[str, Any], ...] = tuple(_describe(name, codec) for name, codec in CODECS.items())
"""What clients receive in `session` (docs/protocol.md)."""
