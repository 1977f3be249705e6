"""MP3 by LAME; the only file that uses the library `lameenc`."""

from __future__ import annotations

from typing import Any

from .packet import Packet
from .pcm import Pcm, encode_s16le

DECODER_DELAY_SAMPLES = 529
"""Delay that every decoder adds to the encoder's."""
ENCODER_DELAY_SAMPLES = 576

_QUALITY = 5
"""LAME's quality setting: 2 is best, 7 is fastest."""
_MPEG_1_FROM_HZ = 32_000
"""Sample rate from which LAME writes MPEG-1, with frames of 1152 samples; below it MPEG-2, with 576."""


class Mp3Coder:
    """A mono stream of constant bit rate without tags; its payloads joined are a whole `.mp3` file.

    LAME holds audio back in its filter and its bit reservoir, so a call of `encode` may return no packet.
    """

    pre_skip = ENCODER_DELAY_SAMPLES + DECODER_DELAY_SAMPLES

    def __init__(self, sample_rate_hz: int, bitrate: int) -> None:
        import lameenc  # loaded only when a client asks for MP3

        self._lame: Any = lameenc.Encoder()
        self._lame.set_channels(1)
        self._lame.set_in_sample_rate(sample_rate_hz)
        self._lame.set_out_sample_rate(sample_rate_hz)
        self._lame.set_bit_rate(bitrate // 1000)
        self._lame.set_quality(_QUALITY)
        self._lame.silence()
        self._rate_hz, self._bitrate = sample_rate_hz, bitrate
        self._frame_samples = 1152 if sample_rate_hz >= _MPEG_1_FROM_HZ else 576
        self._bytes = 0
        self._samples = 0

    def encode(self, pcm: Pcm) -> list[Packet]:
        return self._packets(bytes(self._lame.encode(encode_s16le(pcm))))

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:  # noqa: ARG002 - of the protocol `PacketCoder`
        rest = bytes(self._lame.encode(encode_s16le(pcm))) if len(pcm) else b""
        return self._packets(rest + bytes(self._lame.flush()))

    def _packets(self, payload: bytes) -> list[Packet]:
        if not payload:
            return []
        self._bytes += len(payload)
        # At a constant bit rate the bytes give the number of whole frames; padding lags by less than one byte.
        frames = (self._bytes + 1) * 8 * self._rate_hz // (self._bitrate * self._frame_samples)
        samples, self._samples = frames * self._frame_samples - self._samples, frames * self._frame_samples
        return [Packet(payload, samples)]
