"""Reading recordings: formats, limits, and files that cannot be used."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from voxgate.pipeline.cloning.recording import RecordingLimits, read_recording
from voxgate.pipeline.errors import (
    AudioTooLarge,
    AudioTooLong,
    AudioTooShort,
    ClippedAudio,
    SilentAudio,
    UnreadableAudio,
    UnusableAudio,
)

Samples = NDArray[np.float64]


def tone(seconds: float = 2.0, rate_hz: int = 24_000, level: float = 0.3, hertz: float = 440) -> Samples:
    return level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate_hz)) / rate_hz)


def sound_file(samples: Samples, rate_hz: int = 24_000, format: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=format, subtype=subtype)
    return file.getvalue()


def loudest_hz(pcm: NDArray[np.float32]) -> float:
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    return float(spectrum.argmax() * 24_000 / len(pcm))


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        ("WAV", "PCM_16"),
        ("WAV", "PCM_U8"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("WAVEX", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
        ("MP3", "MPEG_LAYER_III"),
    ],
)
def test_every_format_is_decoded(format: str, subtype: str) -> None:
    pcm = read_recording(sound_file(tone(), format=format, subtype=subtype))
    assert pcm.dtype == np.float32
    assert len(pcm) == pytest.approx(48_000, abs=2500)  # an MP3 has silence around it
    assert loudest_hz(pcm) == pytest.approx(440, abs=1)
    assert np.abs(pcm).max() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_every_rate_is_resampled(rate_hz: int) -> None:
    pcm = read_recording(sound_file(tone(rate_hz=rate_hz), rate_hz))
    assert len(pcm) == pytest.approx(48_000, abs=1)
    assert loudest_hz(pcm) == pytest.approx(440, abs=1)


def test_channels_are_mixed() -> None:
    stereo = np.stack([tone(), np.zeros(48_000)], axis=1)
    pcm = read_recording(sound_file(stereo, subtype="FLOAT"))
    np.testing.assert_allclose(pcm, tone() / 2, atol=1e-6)


def clipped() -> Samples:
    return (3 * tone()).clip(-0.6, 0.6) / 0.6


@pytest.mark.parametrize(
    ("file", "error", "words"),
    [
        (b"", UnreadableAudio, "must be WAV, FLAC, Ogg or MP3"),
        (b"\x00\x00\x00\x20ftypM4A ....", UnreadableAudio, "must be WAV, FLAC, Ogg or MP3"),
        (b"RIFF\x00\x00\x00\x00WAVE", UnreadableAudio, "cannot be read"),
        (b"OggS" + bytes(200), UnreadableAudio, "cannot be read"),
        (b"ID3" + bytes(200), UnreadableAudio, "cannot be read"),
        (sound_file(tone(), 4_000), UnreadableAudio, "at 4000 Hz"),
        (sound_file(np.zeros((9_000, 9)), 8_000), UnreadableAudio, "9 channels"),
        (sound_file(np.full(48_000, np.nan), subtype="FLOAT"), UnreadableAudio, "not finite"),
        (sound_file(np.zeros(0)), AudioTooShort, "0.00 s"),
        (sound_file(tone(0.9)), AudioTooShort, "0.90 s"),
        (sound_file(tone(31)), AudioTooLong, "at most 30 s"),
        (sound_file(np.zeros(48_000)), SilentAudio, "0.00 s"),
        (sound_file(np.full(48_000, 0.5)), SilentAudio, "0.00 s"),
        (sound_file(tone(level=0.002)), SilentAudio, "-50 dB"),
        (sound_file(np.concatenate([tone(0.4), np.zeros(48_000)])), SilentAudio, "0.40 s"),
        (sound_file(clipped()), ClippedAudio, "clipped at full scale"),
        (sound_file(np.stack([tone(), clipped()], axis=1)), ClippedAudio, "clipped"),
    ],
)
def test_unusable_file_raises_error_with_reason(file: bytes, error: type[UnusableAudio], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        read_recording(file)
    assert caught.value.param == "audio"


def test_rare_full_scale_samples_are_accepted() -> None:
    samples = tone()
    samples[::2000] = 1.0
    assert len(read_recording(sound_file(samples))) == 48_000


def test_truncated_file_is_read_to_its_end() -> None:
    whole = sound_file(tone(4))
    assert len(read_recording(whole[: len(whole) // 2])) == pytest.approx(48_000, abs=50)


@pytest.mark.parametrize("limit", [{"max_bytes": 1000}, {"max_duration_s": 1.5}])
def test_limits_of_size_and_duration(limit: dict[str, Any]) -> None:
    with pytest.raises((AudioTooLarge, AudioTooLong)):
        read_recording(sound_file(tone()), RecordingLimits(**limit))


def test_overlong_file_is_not_decoded_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    read = soundfile.SoundFile.read

    def recorded(self: soundfile.SoundFile, frames: int = -1, **options: Any) -> Any:
        requested.append(frames)
        return read(self, frames, **options)

    monkeypatch.setattr(soundfile.SoundFile, "read", recorded)
    with pytest.raises(AudioTooLong):
        read_recording(sound_file(np.zeros(600 * 24_000), format="FLAC"))
    assert requested == [30 * 24_000 + 1]
