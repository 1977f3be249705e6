"""Signed 16-bit samples, and the WAV header before them."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable

import numpy as np
import pytest
import soundfile
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.g711 import decode_alaw, decode_mulaw
from voxgate.codecs.pcm import Pcm, decode_s16le, encode_f32le, encode_s16le, quantize_s16


def test_samples_outside_the_range_are_clipped() -> None:
    pcm = np.array([0, 1, -1, 2, -2, np.nan, np.inf, -np.inf, 0.5, 1 / 32767, 0.4 / 32767], np.float32)
    samples = np.frombuffer(encode_s16le(pcm), "<i2")
    assert samples.tolist() == [0, 32767, -32767, 32767, -32768, 0, 32767, -32767, 16384, 1, 0]


def test_little_endian() -> None:
    assert encode_s16le(np.array([258 / 32767], np.float32)) == b"\x02\x01"


def test_round_trip_is_within_half_a_step() -> None:
    pcm = np.linspace(-1, 1, 10_001, dtype=np.float32)
    assert np.abs(decode_s16le(encode_s16le(pcm)) - pcm).max() <= 0.51 / 32767


def test_wav_header_describes_the_stream() -> None:
    encoder = PacketEncoder(OutputFormat("wav", 16_000))
    stream = b"".join(packet.payload for packet in [*encoder.push(np.zeros(24_000, np.float32)), *encoder.finish()])
    assert len(stream) == 44 + 2 * encoder.true_samples == 44 + 32_000
    with wave.open(io.BytesIO(stream)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (16_000, 1, 2)
        assert len(reader.readframes(100_000)) == 32_000


def test_floats_in_wav_are_read_by_libsndfile() -> None:
    pcm = np.sin(np.arange(24_000) / 20).astype(np.float32)
    encoder = PacketEncoder(OutputFormat("wav_f32"))
    stream = b"".join(packet.payload for packet in [*encoder.push(pcm), *encoder.finish()])
    with soundfile.SoundFile(io.BytesIO(stream)) as reader:
        assert (reader.samplerate, reader.channels, reader.subtype) == (24_000, 1, "FLOAT")
        np.testing.assert_array_equal(reader.read(dtype="float32"), pcm)


def test_floats_outside_the_range_are_clipped() -> None:
    samples = encode_f32le(np.array([2, -np.inf, np.nan, 0.25], np.float32))
    assert np.frombuffer(samples, "<f4").tolist() == [1, -1, 0, 0.25]


@pytest.mark.parametrize(
    ("codec", "subtype", "decode"), [("mulaw", "ULAW", decode_mulaw), ("alaw", "ALAW", decode_alaw)]
)
def test_g711_in_wav_is_read_by_libsndfile(codec: str, subtype: str, decode: Callable[[bytes], Pcm]) -> None:
    pcm = np.sin(np.arange(24_000) / 20).astype(np.float32)

    def encoded(name: str) -> bytes:
        encoder = PacketEncoder(OutputFormat(name, 8000))
        return b"".join(packet.payload for packet in [*encoder.push(pcm), *encoder.finish()])

    raw, stream = encoded(codec), encoded(f"wav_{codec}")
    assert stream.endswith(raw)
    with soundfile.SoundFile(io.BytesIO(stream)) as reader:
        assert (reader.samplerate, reader.channels, reader.subtype) == (8000, 1, subtype)
        samples = reader.read(dtype="int16")
    np.testing.assert_array_equal(samples, quantize_s16(decode(raw)))
