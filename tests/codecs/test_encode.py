from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from voxgate.codecs.encode import Packet, PacketEncoder
from voxgate.codecs.format import CODECS, OPUS_RATES_HZ, PACKETS_MS, PCM_RATES_HZ, FormatError, OutputFormat
from voxgate.codecs.opus import OpusDecoder
from voxgate.codecs.pcm import Pcm, decode_s16le
from voxgate.codecs.resample import Resampler


def speechlike(seconds: float) -> Pcm:
    """Returns a voiced sound with syllables."""
    t = np.arange(int(24_000 * seconds)) / 24_000
    voice = sum(np.sin(2 * np.pi * 130 * n * t) / n for n in range(1, 12))
    return (0.2 * voice * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * t))).astype(np.float32)


def encoded(encoder: PacketEncoder, pcm: Pcm, chunk: int = 1920) -> list[Packet]:
    packets = [p for at in range(0, len(pcm), chunk) for p in encoder.push(pcm[at : at + chunk])]
    return packets + encoder.finish()


def resampled(pcm: Pcm, rate: int) -> Pcm:
    resampler = Resampler(24_000, rate)
    return np.concatenate([resampler.push(pcm), resampler.finish()])


@pytest.mark.parametrize("packet_ms", PACKETS_MS)
@pytest.mark.parametrize("rate", OPUS_RATES_HZ)
def test_opus_decodes_to_whole_audio_after_pre_skip(rate: int, packet_ms: int) -> None:
    pcm = speechlike(1.013)
    encoder = PacketEncoder(OutputFormat("opus", rate, 64_000, packet_ms))
    packets = encoded(encoder, pcm)
    assert {packet.samples for packet in packets} == {rate * packet_ms // 1000}
    decoder = OpusDecoder(rate)
    decoded = np.concatenate([decoder.decode(packet.payload) for packet in packets])
    assert len(decoded) == sum(packet.samples for packet in packets)
    want = resampled(pcm, rate)
    got = decoded[encoder.pre_skip : encoder.pre_skip + encoder.true_samples]
    assert len(got) == len(want) == encoder.true_samples
    assert 10 * np.log10(np.mean(want**2) / np.mean((got - want) ** 2)) > 15
    assert len(decoded) - encoder.pre_skip - encoder.true_samples < encoder.format.packet_samples


@pytest.mark.parametrize("samples", [1, 1763, 1764, 1765, 1920])
def test_last_opus_packet_extends_past_look_ahead(samples: int) -> None:
    encoder = PacketEncoder(OutputFormat())
    packets = encoded(encoder, np.ones(samples, np.float32))
    assert encoder.true_samples == samples
    assert len(packets) == -(-(samples + encoder.pre_skip) // 1920)


@pytest.mark.parametrize("packet_ms", PACKETS_MS)
@pytest.mark.parametrize("rate", PCM_RATES_HZ)
def test_pcm_packets_hold_resampled_audio(rate: int, packet_ms: int) -> None:
    pcm = speechlike(0.517)
    encoder = PacketEncoder(OutputFormat("pcm", rate, packet_ms=packet_ms))
    packets = encoded(encoder, pcm)
    want = resampled(pcm, rate)
    assert encoder.pre_skip == 0
    assert encoder.true_samples == sum(packet.samples for packet in packets) == len(want)
    assert all(len(packet.payload) == 2 * packet.samples for packet in packets)
    at = np.cumsum([packet.samples for packet in packets[:-1]]) * 1000 / rate
    assert np.abs(at - packet_ms * np.arange(1, len(packets))).max() < 1000 / rate
    got = decode_s16le(b"".join(packet.payload for packet in packets))
    np.testing.assert_allclose(got, want, atol=1 / 32767)


@pytest.mark.parametrize(
    "audio_format",
    [
        OutputFormat(),
        OutputFormat("pcm", 16_000),
        OutputFormat("opus", 48_000),
        OutputFormat("mulaw", 8_000),
        OutputFormat("pcm_f32", 22_050),
        OutputFormat("wav_f32", 48_000),
        OutputFormat("mp3", 22_050),
        OutputFormat("wav", 44_100),
        OutputFormat("flac", 24_000),
    ],
)
def test_packets_do_not_depend_on_input_chunks(audio_format: OutputFormat) -> None:
    pcm = speechlike(0.7)
    whole = encoded(PacketEncoder(audio_format), pcm, len(pcm))
    assert encoded(PacketEncoder(audio_format), pcm, 1920) == whole
    assert encoded(PacketEncoder(audio_format), pcm, 501) == whole


@pytest.mark.parametrize("codec", ["opus", "pcm", "ogg_opus", "wav", "flac"])
def test_one_frame_makes_one_packet_without_delay(codec: Any) -> None:
    assert len(PacketEncoder(OutputFormat(codec)).push(np.zeros(1920, np.float32))) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_no_audio_makes_no_packet(codec: str) -> None:
    assert PacketEncoder(OutputFormat(codec, CODECS[codec].sample_rates_hz[0])).finish() == []


def test_bitrate_is_kept() -> None:
    for bitrate in (16_000, 32_000, 96_000):
        packets = encoded(PacketEncoder(OutputFormat("opus", 24_000, bitrate)), speechlike(4))
        spent = 8 * sum(len(packet.payload) for packet in packets) / 4
        assert 0.7 * bitrate < spent < 1.3 * bitrate


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"codec": "aac"}, "codec"),
        ({"codec": "mulaw"}, "sample_rate"),
        ({"codec": "mp3", "sample_rate_hz": 8_000}, "sample_rate"),
        ({"codec": "mp3", "sample_rate_hz": 22_050, "bitrate": 192_000}, "bitrate"),
        ({"codec": "mp3", "bitrate": 33_000}, "bitrate"),
        ({"sample_rate_hz": 44_100}, "sample_rate"),
        ({"codec": "pcm", "sample_rate_hz": 96_000}, "sample_rate"),
        ({"bitrate": 5_999}, "bitrate"),
        ({"bitrate": 256_001}, "bitrate"),
        ({"packet_ms": 60}, "packet_ms"),
    ],
)
def test_unsupported_format_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(FormatError) as error:
        OutputFormat(**fields)
    assert error.value.param == param


def test_bitrate_of_pcm_is_ignored() -> None:
    assert OutputFormat("pcm", 44_100, bitrate=0).packet_samples == 3528
