from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import PCM_RATES_HZ, OutputFormat
from voxgate.codecs.packet import Packet
from voxgate.codecs.pcm import Pcm, quantize_s16
from voxgate.codecs.resample import Resampler

LENGTH_AT = 22
"""Offset of the lower 32 bits of the number of samples in STREAMINFO (RFC 9639, section 8.2)."""


def chirp(seconds: float) -> Pcm:
    t = np.arange(int(24_000 * seconds)) / 24_000
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t)).astype(np.float32)


def encoded(encoder: PacketEncoder, pcm: Pcm) -> list[Packet]:
    return [p for at in range(0, len(pcm), 1920) for p in encoder.push(pcm[at : at + 1920])] + encoder.finish()


def decoded(packets: list[Packet]) -> tuple[NDArray[np.int16], int]:
    """Samples and rate. libsndfile reads no stream of unknown length, so the length is entered first."""
    stream = bytearray(b"".join(packet.payload for packet in packets))
    assert stream[LENGTH_AT : LENGTH_AT + 4] == bytes(4)
    stream[LENGTH_AT : LENGTH_AT + 4] = sum(packet.samples for packet in packets).to_bytes(4, "big")
    samples, rate = soundfile.read(io.BytesIO(bytes(stream)), dtype="int16")
    return samples, rate


@pytest.mark.parametrize("rate", PCM_RATES_HZ)
def test_flac_is_lossless(rate: int) -> None:
    pcm = chirp(1.013)
    resampler = Resampler(24_000, rate)
    want = quantize_s16(np.concatenate([resampler.push(pcm), resampler.finish()]))
    encoder = PacketEncoder(OutputFormat("flac", rate))
    packets = encoded(encoder, pcm)
    samples, written_rate = decoded(packets)
    assert written_rate == rate
    assert len(samples) == encoder.true_samples == sum(packet.samples for packet in packets)
    np.testing.assert_array_equal(samples, want)


@pytest.mark.parametrize("samples", [1, 1151, 1152, 1153, 2304, 2305])
def test_packets_can_be_decoded_without_those_that_follow(samples: int) -> None:
    encoder = PacketEncoder(OutputFormat("flac"))
    packets = encoded(encoder, chirp(1)[:samples])
    for end in range(1, len(packets) + 1):
        assert len(decoded(packets[:end])[0]) == sum(packet.samples for packet in packets[:end])
    assert sum(packet.samples for packet in packets) == samples


def test_a_stream_that_is_abandoned_leaves_no_error() -> None:
    encoder = PacketEncoder(OutputFormat("flac"))
    assert encoder.push(chirp(1))
    del encoder
