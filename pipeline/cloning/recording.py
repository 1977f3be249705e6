"""The recording that a voice is made of: any sound file people have, to 24 kHz mono, or a clear word why not."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm

from ..cloned_voice import MAX_REFERENCE_FRAMES
from ..errors import (
    AudioTooLarge,
    AudioTooLong,
    AudioTooShort,
    ClippedAudio,
    SilentAudio,
    UnreadableAudio,
)

LEAST_S = 1.0
MOST_S = MAX_REFERENCE_FRAMES * 0.08
LEAST_AUDIBLE_S = 0.5
"""Of speech above the noise; what is quieter all through says nothing about a voice."""
AUDIBLE_DB = -50.0
"""Level, against full scale, from which a stretch of 20 ms counts as heard."""
FULL_SCALE = 0.999
MOST_CLIPPED = 0.002
"""Share of samples at full scale: speech brought up to it touches it now and then, overdriven speech all the time."""
RATES_HZ = range(8_000, 192_001)
MOST_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """`max_bytes` is the file's size, `max_duration_s` how long it lasts."""

    max_bytes: int = 20 << 20
    max_duration_s: float = MOST_S


def read_recording(file: bytes, limits: RecordingLimits = RecordingLimits()) -> Pcm:
    """A WAV, FLAC, Ogg or MP3 file of any rate, channels mixed -> float32 [n] in [-1, 1], 24 kHz mono.

    Raises UnreadableAudio, AudioTooLarge, AudioTooLong, AudioTooShort, SilentAudio, ClippedAudio.
    """
    if len(file) > limits.max_bytes:
        raise AudioTooLarge(f"the file has {len(file)} bytes, more than {limits.max_bytes}", param="audio")
    _check_kind(file)
    samples, rate_hz = _decode(file, limits.max_duration_s)
    if not np.isfinite(samples).all():
        raise UnreadableAudio("the file holds samples that are no numbers", param="audio")
    duration_s = len(samples) / rate_hz
    if duration_s > limits.max_duration_s:
        raise AudioTooLong(f"a recording lasts at most {limits.max_duration_s:g} s; 5 to 15 s are best", param="audio")
    if duration_s < LEAST_S:
        message = f"the recording lasts {duration_s:.2f} s; it takes {LEAST_S:g} s, and 5 to 15 s are best"
        raise AudioTooShort(message, param="audio")
    clipped = float((np.abs(samples) >= FULL_SCALE).any(axis=1).mean())
    if clipped > MOST_CLIPPED:
        message = f"{clipped:.1%} of the recording is cut off at full scale; record it at a lower level"
        raise ClippedAudio(message, param="audio")
    pcm = soxr.resample(samples.mean(axis=1), rate_hz, SAMPLE_RATE_HZ).clip(-1, 1).astype(np.float32)
    audible_s = _audible_s(pcm)
    if audible_s < LEAST_AUDIBLE_S:
        message = f"only {audible_s:.2f} s of the recording are louder than {AUDIBLE_DB:g} dB of full scale"
        raise SilentAudio(message, param="audio")
    return np.ascontiguousarray(pcm)


def _check_kind(file: bytes) -> None:
    """The library behind reads many rare formats; what strangers send meets only the parsers of four."""
    head = file[:12]
    mp3 = head[:3] == b"ID3" or (head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xE0 == 0xE0)
    wave = head[:4] == b"RIFF" and head[8:] == b"WAVE"
    if not (mp3 or wave or head[:4] in (b"fLaC", b"OggS")):
        raise UnreadableAudio("this is no WAV, FLAC, Ogg or MP3 file", param="audio")


def _decode(file: bytes, max_duration_s: float) -> tuple[NDArray[np.float32], int]:
    """[samples, channels] and the rate. Of an overlong file only so much that it shows."""
    try:
        with soundfile.SoundFile(io.BytesIO(file)) as sound:
            rate_hz, channels = sound.samplerate, sound.channels
            if rate_hz not in RATES_HZ or channels > MOST_CHANNELS:
                raise UnreadableAudio(
                    f"the file has {channels} channels at {rate_hz} Hz; up to {MOST_CHANNELS} channels "
                    f"from {RATES_HZ[0]} to {RATES_HZ[-1]} Hz are read",
                    param="audio",
                )
            # What a header says of the length may be wrong, so the samples themselves are counted.
            samples = sound.read(int(max_duration_s * rate_hz) + 1, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise UnreadableAudio(f"the file cannot be read: {error}", param="audio") from error
    return samples, rate_hz


def _audible_s(pcm: Pcm) -> float:
    window = SAMPLE_RATE_HZ // 50
    stretches = pcm[: len(pcm) // window * window].reshape(-1, window)
    # Without its mean: an offset of the recorder is no sound.
    power = stretches.var(axis=1)
    return int((power > 10 ** (AUDIBLE_DB / 10)).sum()) * window / SAMPLE_RATE_HZ
