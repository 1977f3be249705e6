"""Reads the recording that a voice is cloned from: a sound file to 24 kHz mono PCM, or an error with the reason."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_MS, SAMPLE_RATE_HZ, Pcm

from ..cloned_voice import MAX_REFERENCE_FRAMES
from ..errors import (
    AudioTooLarge,
    AudioTooLong,
    AudioTooShort,
    ClippedAudio,
    SilentAudio,
    UnreadableAudio,
)

MIN_DURATION_S = 1.0
MAX_DURATION_S = MAX_REFERENCE_FRAMES * FRAME_MS / 1000
MIN_AUDIBLE_S = 0.5
"""Least duration above the noise floor: less says too little about a voice."""
AUDIBLE_DBFS = -50.0
"""Level from which a window of 20 ms counts as audible."""
FULL_SCALE = 0.999
"""Magnitude from which a sample counts as clipped."""
MAX_CLIPPED_SHARE = 0.002
"""Largest share of clipped samples: normalised speech touches full scale rarely, overdriven speech all the time."""
RATES_HZ = range(8_000, 192_001)
MAX_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """Limits of an uploaded recording: the file's size, and its duration."""

    max_bytes: int = 20 << 20
    max_duration_s: float = MAX_DURATION_S


def read_recording(file: bytes, limits: RecordingLimits = RecordingLimits()) -> Pcm:
    """Decode a WAV, FLAC, Ogg or MP3 file of any rate and mix its channels: float32 [n] in [-1, 1], 24 kHz mono.

    Raises UnreadableAudio, AudioTooLarge, AudioTooLong, AudioTooShort, SilentAudio, ClippedAudio.
    """
    if len(file) > limits.max_bytes:
        raise AudioTooLarge(f"the file must have at most {limits.max_bytes} bytes, got {len(file)}", param="audio")
    _check_format(file)
    samples, rate_hz = _decode(file, limits.max_duration_s)
    if not np.isfinite(samples).all():
        raise UnreadableAudio("the file contains samples that are not finite numbers", param="audio")
    duration_s = len(samples) / rate_hz
    if duration_s > limits.max_duration_s:
        message = f"the recording must last at most {limits.max_duration_s:g} s; 5 to 15 s are best"
        raise AudioTooLong(message, param="audio")
    if duration_s < MIN_DURATION_S:
        message = f"the recording must last at least {MIN_DURATION_S:g} s, got {duration_s:.2f} s; 5 to 15 s are best"
        raise AudioTooShort(message, param="audio")
    clipped_share = float((np.abs(samples) >= FULL_SCALE).any(axis=1).mean())
    if clipped_share > MAX_CLIPPED_SHARE:
        message = f"{clipped_share:.1%} of the recording is clipped at full scale; record it at a lower level"
        raise ClippedAudio(message, param="audio")
    pcm = soxr.resample(samples.mean(axis=1), rate_hz, SAMPLE_RATE_HZ).clip(-1, 1).astype(np.float32)
    audible_s = _audible_s(pcm)
    if audible_s < MIN_AUDIBLE_S:
        message = (
            f"at least {MIN_AUDIBLE_S:g} s of the recording must be louder than {AUDIBLE_DBFS:g} dB of full scale, "
            f"got {audible_s:.2f} s"
        )
        raise SilentAudio(message, param="audio")
    return np.ascontiguousarray(pcm)


def _check_format(file: bytes) -> None:
    """Raise UnreadableAudio unless the file starts as one of four formats.

    The decoding library supports many rare formats; untrusted files are to reach only these parsers.
    """
    head = file[:12]
    mp3 = head[:3] == b"ID3" or (head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xE0 == 0xE0)
    wave = head[:4] == b"RIFF" and head[8:] == b"WAVE"
    if not (mp3 or wave or head[:4] in (b"fLaC", b"OggS")):
        raise UnreadableAudio("the file must be WAV, FLAC, Ogg or MP3", param="audio")


def _decode(file: bytes, max_duration_s: float) -> tuple[NDArray[np.float32], int]:
    """Samples, float32 [samples, channels], and their rate in Hz.

    Of a file longer than `max_duration_s`, decodes only one sample more than that.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(file)) as sound:
            rate_hz, channels = sound.samplerate, sound.channels
            if rate_hz not in RATES_HZ or channels > MAX_CHANNELS:
                raise UnreadableAudio(
                    f"the file must have at most {MAX_CHANNELS} channels at {RATES_HZ[0]} to {RATES_HZ[-1]} Hz, "
                    f"got {channels} channels at {rate_hz} Hz",
                    param="audio",
                )
            # The length in the header may be wrong, so the decoded samples are counted instead.
            samples = sound.read(int(max_duration_s * rate_hz) + 1, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise UnreadableAudio(f"the file cannot be read: {error}", param="audio") from error
    return samples, rate_hz


def _audible_s(pcm: Pcm) -> float:
    """Duration of all windows of 20 ms that are louder than `AUDIBLE_DBFS`."""
    window = SAMPLE_RATE_HZ // 50
    windows = pcm[: len(pcm) // window * window].reshape(-1, window)
    # The variance leaves out a recorder's constant offset, which is not sound.
    power = windows.var(axis=1)
    return int((power > 10 ** (AUDIBLE_DBFS / 10)).sum()) * window / SAMPLE_RATE_HZ
