"""What the gateway sees of audio coding: an encoder that turns PCM into the packets of a format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..codecs.format import AudioFormat
from ..pipeline.speech import Pcm


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
"""Makes the encoder of one utterance."""
