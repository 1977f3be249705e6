"""From the codec's audio to the packets of the format a client asked for."""

from __future__ import annotations

import numpy as np

from .format import OutputFormat
from .g711 import encode_alaw, encode_mulaw
from .mp3 import Mp3Coder
from .ogg import OggOpusCoder
from .opus import OpusCoder, OpusEncoder
from .packet import Coder, Packet, SampleCoder
from .pcm import SAMPLE_RATE_HZ, Pcm, encode_s16le, stream_header
from .resample import Resampler

__all__ = ["Packet", "PacketEncoder"]


class PacketEncoder:
    """Codes one utterance: 24 kHz float in, packets of the client's format out. Not thread-safe.

    Of what a decoder puts out, samples [pre_skip, pre_skip + true_samples) are exactly the audio.
    """

    def __init__(self, audio_format: OutputFormat) -> None:
        """Raises OpusUnavailable when Opus is asked for without libopus."""
        self.format = audio_format
        self._resampler = Resampler(SAMPLE_RATE_HZ, audio_format.sample_rate_hz)
        self._coder = _coder(audio_format)
        self._waiting: Pcm = np.zeros(0, np.float32)
        self._parts = 0
        self.true_samples = 0
        """Samples of audio at the format's rate so far; after `finish`, of the whole utterance."""

    @property
    def pre_skip(self) -> int:
        """Samples to drop at the start of what the decoder puts out, at the format's rate."""
        return self._coder.pre_skip

    def push(self, pcm: Pcm) -> list[Packet]:
        """Take in a chunk (float32 [n], 24 kHz) and return the packets that are full."""
        return self._take(self._resampler.push(pcm))

    def finish(self) -> list[Packet]:
        """The rest; nothing when there was no audio at all."""
        packets = self._take(self._resampler.finish())
        if self.true_samples:
            packets += self._coder.finish(self._waiting, self.true_samples)
        self._waiting = self._waiting[:0]
        return packets

    def _take(self, pcm: Pcm) -> list[Packet]:
        self.true_samples += len(pcm)
        pcm = np.concatenate([self._waiting, pcm]) if len(self._waiting) else pcm
        packets: list[Packet] = []
        at = 0
        while (end := at + self._next_size()) <= len(pcm):
            packets += self._coder.encode(pcm[at:end])
            self._parts += 1
            at = end
        self._waiting = pcm[at:].copy()
        return packets

    def _next_size(self) -> int:
        rate, ms, n = self.format.sample_rate_hz, self.format.packet_ms, self._parts
        return (n + 1) * rate * ms // 1000 - n * rate * ms // 1000


def _coder(wanted: OutputFormat) -> Coder:
    rate_hz = wanted.sample_rate_hz
    match wanted.codec:
        case "opus":
            return _opus(wanted)
        case "ogg_opus":
            return OggOpusCoder(_opus(wanted), rate_hz)
        case "mp3":
            return Mp3Coder(rate_hz, wanted.bitrate)
        case "wav":
            return SampleCoder(encode_s16le, stream_header(rate_hz))
        case "mulaw":
            return SampleCoder(encode_mulaw)
        case "alaw":
            return SampleCoder(encode_alaw)
        case "pcm":
            return SampleCoder(encode_s16le)
    raise AssertionError(f"{wanted.codec} is offered and has no coder")


def _opus(wanted: OutputFormat) -> OpusCoder:
    return OpusCoder(OpusEncoder(wanted.sample_rate_hz, wanted.bitrate, wanted.packet_samples))
