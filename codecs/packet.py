"""What an encoder puts out, and the shape of the encoders behind `encode.py`."""
# TODO-DOC Formats that code every sample by itself: PCM, mu-law, A-law, and WAV, which is PCM behind a header.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .pcm import Pcm


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


class SampleCoder:
    """No look-ahead and no state but the header, which goes in front of the first packet."""

    pre_skip = 0

    def __init__(self, encode: Callable[[Pcm], bytes], header: bytes = b"") -> None:
        self._encode = encode
        self._header = header

    def encode(self, pcm: Pcm) -> list[Packet]:
        header, self._header = self._header, b""
        return [Packet(header + self._encode(pcm), len(pcm))]

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:  # noqa: ARG002 - the `Coder` protocol
        """A last packet may be short."""
        return self.encode(pcm) if len(pcm) else []
