"""Formats that code every sample by itself: PCM, mu-law, A-law, and WAV, which is PCM behind a header."""

from __future__ import annotations

from collections.abc import Callable

from .packet import Packet, Pcm


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
