"""Encodes the neural codec's audio as packets of the format that a client asked for."""

from __future__ import annotations

import secrets

import numpy as np

from .flac import FlacCoder
from .format import OutputFormat
from .g711 import encode_alaw, encode_mulaw
from .mp3 import Mp3Coder
from .ogg import OggOpusCoder
from .opus import OpusCoder, OpusEncoder
from .packet import Packet, PacketCoder, SampleCoder
from .pcm import ALAW_FORMAT, FLOAT_FORMAT, MULAW_FORMAT, SAMPLE_RATE_HZ, Pcm, encode_f32le, encode_s16le, stream_header
from .resample import Resampler

__all__ = ["Packet", "PacketEncoder"]


class PacketEncoder:
    """Encodes one utterance: float32 at 24 kHz in, packets of the client's format out. Not thread-safe.

    Of the samples that a decoder outputs, [pre_skip, pre_skip + true_samples) are exactly the audio.
    """

    def __init__(self, audio_format: OutputFormat, serial: int | None = None) -> None:
        """`serial`: of an Ogg stream; random unless given. Raises OpusUnavailable for Opus without libopus."""
        self.format = audio_format
        if serial is None:
            # Only Ogg has one, and a random number is a system call.
            serial = secrets.randbits(32) if audio_format.codec == "ogg_opus" else 0
        self._serial = serial
        self.true_samples = 0
        """Samples of audio at the format's rate so far; of the whole utterance after `finish`."""
        self._resampler = Resampler(SAMPLE_RATE_HZ, audio_format.sample_rate_hz)
        self._coder = _coder(audio_format, self._serial)
        self._incomplete: Pcm = np.zeros(0, np.float32)
        """Samples of the packet that is not full yet."""
        self._full_packets = 0

    def renew(self) -> PacketEncoder:
        """Returns an encoder that makes the same packets from the same audio, from the beginning."""
        return PacketEncoder(self.format, self._serial)

    @property
    def pre_skip(self) -> int:
        """Samples, at the format's rate, to drop at the start of the decoder's output."""
        return self._coder.pre_skip

    def push(self, pcm: Pcm) -> list[Packet]:
        """Accepts a chunk, float32 [n] at 24 kHz, and returns the packets that are full."""
        return self._encode_full_packets(self._resampler.push(pcm))

    def finish(self) -> list[Packet]:
        """Returns the remaining packets; none for an utterance without audio."""
        packets = self._encode_full_packets(self._resampler.finish())
        if self.true_samples:
            packets += self._coder.finish(self._incomplete, self.true_samples)
        self._incomplete = self._incomplete[:0]
        return packets

    def _encode_full_packets(self, pcm: Pcm) -> list[Packet]:
        self.true_samples += len(pcm)
        pcm = np.concatenate([self._incomplete, pcm]) if len(self._incomplete) else pcm
        packets: list[Packet] = []
        start = 0
        while (end := start + self._next_packet_samples()) <= len(pcm):
            packets += self._coder.encode(pcm[start:end])
            self._full_packets += 1
            start = end
        self._incomplete = pcm[start:].copy()
        return packets

    def _next_packet_samples(self) -> int:
        """Packets differ by a sample where the rate is no multiple of the packets per second."""
        rate, ms, n = self.format.sample_rate_hz, self.format.packet_ms, self._full_packets
        return (n + 1) * rate * ms // 1000 - n * rate * ms // 1000


def _coder(audio_format: OutputFormat, serial: int) -> PacketCoder:
    rate_hz = audio_format.sample_rate_hz
    match audio_format.codec:
        case "opus":
            return _opus(audio_format)
        case "ogg_opus":
            return OggOpusCoder(_opus(audio_format), rate_hz, serial)
        case "mp3":
            return Mp3Coder(rate_hz, audio_format.bitrate)
        case "flac":
            return FlacCoder(rate_hz)
        case "wav":
            return SampleCoder(encode_s16le, stream_header(rate_hz))
        case "wav_f32":
            return SampleCoder(encode_f32le, stream_header(rate_hz, FLOAT_FORMAT))
        case "wav_mulaw":
            return SampleCoder(encode_mulaw, stream_header(rate_hz, MULAW_FORMAT))
        case "wav_alaw":
            return SampleCoder(encode_alaw, stream_header(rate_hz, ALAW_FORMAT))
        case "mulaw":
            return SampleCoder(encode_mulaw)
        case "alaw":
            return SampleCoder(encode_alaw)
        case "pcm":
            return SampleCoder(encode_s16le)
        case "pcm_f32":
            return SampleCoder(encode_f32le)
    raise AssertionError(f"no coder for the codec {audio_format.codec!r}")


def _opus(audio_format: OutputFormat) -> OpusCoder:
    return OpusCoder(OpusEncoder(audio_format.sample_rate_hz, audio_format.bitrate, audio_format.packet_samples))
