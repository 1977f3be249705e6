"""Opus by libopus; the only file that uses the library `opuslib`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .format import FormatError
from .packet import Packet
from .pcm import Pcm

MUSIC_FROM_BITRATE = 32_000
"""Bits per second from which the encoder is tuned for fidelity (AUDIO); below, for speech (VOIP)."""

_COMPLEXITY = 5
_MAX_PACKET_BYTES = 6000
_APPLICATION_VOIP, _APPLICATION_AUDIO = 2048, 2049


class OpusUnavailable(FormatError):
    """The shared library libopus is not installed."""


@cache
def _library() -> Any:
    try:
        import opuslib
        import opuslib.api.ctl
        import opuslib.api.decoder
        import opuslib.api.encoder
    except Exception as error:  # opuslib raises a bare Exception when it cannot find libopus
        raise OpusUnavailable(
            "Opus needs the shared library libopus (Debian and Ubuntu: apt-get install libopus0)", param="codec"
        ) from error
    return opuslib.api


class OpusEncoder:
    """Encodes one mono stream: variable bit rate, complexity 5, no DTX, no FEC. Not thread-safe."""

    def __init__(self, sample_rate_hz: int, bitrate: int, packet_samples: int) -> None:
        """Raises OpusUnavailable without libopus."""
        api = _library()
        application = _APPLICATION_AUDIO if bitrate >= MUSIC_FROM_BITRATE else _APPLICATION_VOIP
        self.packet_samples = packet_samples
        self._encode, self._destroy = api.encoder.encode_float, api.encoder.destroy
        self._state = api.encoder.create_state(sample_rate_hz, 1, application)
        control, ctl = api.encoder.encoder_ctl, api.ctl
        control(self._state, ctl.set_bitrate, bitrate)
        control(self._state, ctl.set_vbr, 1)
        control(self._state, ctl.set_complexity, _COMPLEXITY)
        control(self._state, ctl.set_dtx, 0)
        control(self._state, ctl.set_inband_fec, 0)
        self.pre_skip_samples: int = control(self._state, ctl.get_lookahead)
        """Samples, at the stream's rate, that a decoder outputs before the audio begins."""

    def encode(self, pcm: NDArray[np.float32]) -> bytes:
        """Encodes one packet, float32 [packet_samples]. Raises ValueError for another length."""
        if len(pcm) != self.packet_samples:
            raise ValueError(f"an Opus packet must have {self.packet_samples} samples, got {len(pcm)}")
        samples = np.ascontiguousarray(np.nan_to_num(pcm), "=f4").tobytes()
        packet: bytes = self._encode(self._state, samples, self.packet_samples, _MAX_PACKET_BYTES)
        return packet

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._destroy(self._state)


class OpusCoder:
    """A `PacketCoder` for Opus; it pads the end with silence, so that the decoder outputs all audio after its delay."""

    def __init__(self, encoder: OpusEncoder) -> None:
        self._encoder = encoder
        self.pre_skip = encoder.pre_skip_samples

    def encode(self, pcm: Pcm) -> list[Packet]:
        return [Packet(self._encoder.encode(pcm), len(pcm))]

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:  # noqa: ARG002 - of the protocol `PacketCoder`
        """Returns one packet, or two when the rest and the encoder's look-ahead do not fit in one."""
        size = self._encoder.packet_samples
        silence = np.zeros(-(len(pcm) + self.pre_skip) % size + self.pre_skip, np.float32)
        padded = np.concatenate([pcm, silence])
        return [packet for start in range(0, len(padded), size) for packet in self.encode(padded[start : start + size])]


class OpusDecoder:
    """Decodes the packets of an `OpusEncoder`, for clients and tests."""

    def __init__(self, sample_rate_hz: int) -> None:
        """Raises OpusUnavailable without libopus."""
        api = _library()
        self._max_samples = sample_rate_hz * 120 // 1000
        self._decode, self._destroy = api.decoder.decode_float, api.decoder.destroy
        self._state = api.decoder.create_state(sample_rate_hz, 1)

    def decode(self, packet: bytes) -> NDArray[np.float32]:
        """Decodes one packet to float32 [n], pre-skip included."""
        pcm: bytes = self._decode(self._state, packet, len(packet), self._max_samples, False, channels=1)
        return np.frombuffer(pcm, "=f4")

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._destroy(self._state)
