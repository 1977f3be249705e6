"""The audio formats on offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SOURCE_RATE_HZ = 24_000
"""The rate the neural codec speaks at."""

OPUS_RATES_HZ = (8000, 12000, 16000, 24000, 48000)
PCM_RATES_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
BITRATES = (6_000, 256_000)
"""Opus: least and most, in bit/s."""
DEFAULT_BITRATE = 32_000
PACKETS_MS = (80, 40, 20)

FORMATS: tuple[dict[str, Any], ...] = (
    {
        "codec": "opus",
        "sample_rates": OPUS_RATES_HZ,
        "bitrate": {"min": BITRATES[0], "max": BITRATES[1], "default": DEFAULT_BITRATE},
        "packet_ms": PACKETS_MS,
    },
    {"codec": "pcm", "sample_rates": PCM_RATES_HZ, "packet_ms": PACKETS_MS},
)
"""As told to clients (docs/protocol.md, `session`)."""


class FormatError(ValueError):
    """An audio format that is not offered; the message lists what is, `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How audio is coded for the client; `bitrate` is Opus's alone. Raises FormatError for what is not offered."""

    codec: str = "opus"
    sample_rate_hz: int = SOURCE_RATE_HZ
    bitrate: int = DEFAULT_BITRATE
    packet_ms: int = 80

    def __post_init__(self) -> None:
        if self.codec not in ("opus", "pcm"):
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
