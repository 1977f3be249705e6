from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import MP3_BITRATES_FROM_32_KHZ, MP3_RATES_HZ, FormatError, OutputFormat
from voxgate.codecs.packet import Packet
from voxgate.codecs.pcm import Pcm
from voxgate.codecs.resample import Resampler

# Kilobits per second by the index in a frame's header, layer III (ISO 11172-3 table 2.4.2.3, ISO 13818-3).
MPEG_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
MPEG_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
RATES = ((44_100, 48_000, 32_000), (22_050, 24_000, 16_000))
OFFERED = [
    (rate, bitrate)
    for rate in MP3_RATES_HZ
    for bitrate in (32_000, 64_000, 128_000, 160_000, 192_000, 320_000)
    if bitrate <= 160_000 or rate >= 32_000
]


def chirp(seconds: float) -> Pcm:
    t = np.arange(int(24_000 * seconds)) / 24_000
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t)).astype(np.float32)


def encoded(encoder: PacketEncoder, pcm: Pcm) -> list[Packet]:
    return [p for at in range(0, len(pcm), 1920) for p in encoder.push(pcm[at : at + 1920])] + list(encoder.finish())


def read_frames(stream: bytes) -> list[tuple[int, int, int]]:
    """Returns sample rate, bit rate and samples of every frame; fails for bytes outside frames."""
    frames = []
    at = 0
    while at < len(stream):
        assert stream[at] == 0xFF
        assert stream[at + 1] & 0xE6 == 0xE2  # the rest of the sync word, layer III
        mpeg_1 = bool(stream[at + 1] & 0x08)
        bitrate = 1000 * (MPEG_1 if mpeg_1 else MPEG_2)[stream[at + 2] >> 4]
        rate = RATES[0 if mpeg_1 else 1][stream[at + 2] >> 2 & 3]
        samples = 1152 if mpeg_1 else 576
        assert stream[at + 3] >> 6 == 3  # mono
        frames.append((rate, bitrate, samples))
        at += samples // 8 * bitrate // rate + (stream[at + 2] >> 1 & 1)
    assert at == len(stream)
    return frames


@pytest.mark.parametrize(("rate", "bitrate"), OFFERED)
def test_mp3_frames_have_requested_rate_and_count(rate: int, bitrate: int) -> None:
    encoder = PacketEncoder(OutputFormat("mp3", rate, bitrate))
    packets = encoded(encoder, chirp(1.23))
    frames = read_frames(b"".join(packet.payload for packet in packets))
    assert {frame[:2] for frame in frames} == {(rate, bitrate)}
    decoded = sum(samples for *_, samples in frames)
    assert sum(packet.samples for packet in packets) == decoded
    assert decoded >= encoder.pre_skip + encoder.true_samples
    assert encoder.true_samples == round(1.23 * rate)


def test_mp3_packets_are_returned_before_the_end() -> None:
    encoder = PacketEncoder(OutputFormat("mp3", 44_100, 128_000))
    sent = [sum(packet.samples for packet in encoder.push(chirp(0.08))) for _ in range(10)]
    assert all(sent[1:])
    assert sum(sent) > 0.6 * 44_100  # of 0.8 s; the filter, a whole frame and the reservoir hold the rest back


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg decodes what was encoded")
@pytest.mark.parametrize("rate", [22_050, 44_100])
def test_mp3_decodes_to_the_audio_after_pre_skip(rate: int) -> None:
    encoder = PacketEncoder(OutputFormat("mp3", rate, 128_000))
    stream = b"".join(packet.payload for packet in encoded(encoder, chirp(1)))
    command = ["ffmpeg", "-v", "error", "-f", "mp3", "-i", "-", "-f", "s16le", "-"]
    run = subprocess.run(command, input=stream, capture_output=True, check=True, timeout=30)
    decoded = np.frombuffer(run.stdout, "<i2") / 32767
    resampler = Resampler(24_000, rate)
    want = np.concatenate([resampler.push(chirp(1)), resampler.finish()])
    got = decoded[encoder.pre_skip : encoder.pre_skip + encoder.true_samples]
    assert 10 * np.log10(np.mean(want**2) / np.mean((got - want) ** 2)) > 15


def test_bitrate_not_offered_for_the_sample_rate_is_refused() -> None:
    for bitrate in set(MP3_BITRATES_FROM_32_KHZ) - {b for r, b in OFFERED if r == 16_000}:
        if bitrate > 160_000:
            with pytest.raises(FormatError, match="offered are 32000"):
                OutputFormat("mp3", 16_000, bitrate)
