"""What the gateway sees of audio coding: a format asked for, and an encoder that turns PCM into packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..pipeline.speech import Pcm


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The audio of one utterance, as the client hears it; mono. `bitrate`: bit/s, meaningless for PCM."""

    codec: str = "opus"
    sample_rate_hz: int = 24_000
    bitrate: int = 32_000
    packet_ms: int = 80


class Packet(Protocol):
    """One Opus packet, or a run of s16le samples."""

    @property
    def payload(self) -> bytes: ...

    @property
    def samples(self) -> int:
        """Samples the decoder puts out for it, at the format's rate."""


class PacketEncoder(Protocol):
    """One utterance's encoder. Not thread-safe."""

    @property
    def pre_skip(self) -> int:
        """Samples at the format's rate that the listener drops at the start."""

    @property
    def true_samples(self) -> int:
        """Samples of exact audio so far, without `pre_skip` and padding; final after `finish`."""

    def push(self, pcm: Pcm) -> Sequence[Packet]:
        """Encode `pcm`: float32 [n] in [-1, 1], 24 kHz mono; returns the packets that are full."""

    def finish(self) -> Sequence[Packet]:
        """The packets still held back. Nothing may be pushed afterwards."""


EncoderFactory = Callable[[AudioFormat], PacketEncoder]
"""Makes an encoder; raises ValueError, with what is offered in its text, for a format that is not."""

PCM_RATES_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
OPUS_RATES_HZ = (8000, 12000, 16000, 24000, 48000)
PACKET_MS = (80, 40, 20)

FORMATS: tuple[dict[str, Any], ...] = (
    {
        "codec": "opus",
        "sample_rates": OPUS_RATES_HZ,
        "bitrate": {"min": 6_000, "max": 256_000, "default": 32_000},
        "packet_ms": PACKET_MS,
    },
    {"codec": "pcm", "sample_rates": PCM_RATES_HZ, "packet_ms": PACKET_MS},
)
"""The formats on offer, as the `session` message lists them (docs/protocol.md)."""
