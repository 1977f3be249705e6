"""Encoded packets, and the interface of the coders behind `encode.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .pcm import Pcm


@dataclass(frozen=True, slots=True)
class Packet:
    """The encoded audio of one message; a decoder outputs `samples` samples for it."""

    payload: bytes
    samples: int


class PacketCoder(Protocol):
    """Encodes audio that is already at the format's rate and cut into packets. Not thread-safe."""

    pre_skip: int
    """Samples at the format's rate that a decoder outputs before the audio begins."""

    def encode(self, pcm: Pcm) -> list[Packet]:
        """Encodes the samples of a full packet, float32 [packet_samples]."""

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:
        """Encodes the rest, less than a packet. `true_samples`: length of the whole audio; never called for 0."""


class SampleCoder:
    """A `PacketCoder` of formats that encode each sample by itself, such as PCM and mu-law.

    Its only state is the header, which precedes the first packet.
    """

    pre_skip = 0

    def __init__(self, encode: Callable[[Pcm], bytes], header: bytes = b"") -> None:
        self._encode = encode
        self._header = header

    def encode(self, pcm: Pcm) -> list[Packet]:
        header, self._header = self._header, b""
        return [Packet(header + self._encode(pcm), len(pcm))]

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:  # noqa: ARG002 - of the protocol `PacketCoder`
        """Encodes the rest as a short packet."""
        return self.encode(pcm) if len(pcm) else []
