"""A recording's codes and speaker vector, from the file on (docs/qwen3_tts.md)."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from family_cases import RECORDINGS, REFERENCE_TEXT, recording
from voxgate.codecs.neural.config import EncoderConfig
from voxgate.codecs.neural.encoder import CodecEncoder
from voxgate.codecs.neural.weights import load_module_weights
from voxgate.pipeline.cloning.creation import VoiceDraft, voice_from_recording
from voxgate.pipeline.cloning.recording import RecordingLimits, read_recording

from .conftest import LocalModel, ReferenceRecording

TOLERANCE = 1e-5
EVERY = pytest.mark.parametrize(("variant", "rate_hz", "samples"), RECORDINGS)


def sound_file(rate_hz: int, samples: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, recording(samples), rate_hz, format="WAV", subtype="FLOAT")
    return file.getvalue()


def encoder(local_model: LocalModel, window: int | None) -> CodecEncoder:
    folder = local_model.checkpoint.codec_folder
    config = replace(EncoderConfig.from_checkpoint(folder), sliding_window=window)
    return load_module_weights(lambda: CodecEncoder(config), folder, "encoder.")


@EVERY
def test_codes_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording],
    local_model: Callable[[str], LocalModel],
    variant: str,
    rate_hz: int,
    samples: int,
) -> None:
    expected = recorded("encoders")[f"{variant}/{rate_hz}/{samples}/codes"]
    pcm = torch.from_numpy(read_recording(sound_file(rate_hz, samples)))
    # Without flash attention the reference attends to everything before, not to the window of its configuration.
    codes = encoder(local_model(variant), window=None).encode(pcm)
    np.testing.assert_array_equal(codes.numpy(), expected)
    assert len({tuple(frame) for frame in expected.tolist()}) > len(expected) / 2


@EVERY
def test_speaker_vectors_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording],
    local_model: Callable[[str], LocalModel],
    variant: str,
    rate_hz: int,
    samples: int,
) -> None:
    expected = recorded("encoders")[f"{variant}/{rate_hz}/{samples}/vector"]
    draft = VoiceDraft("ada", REFERENCE_TEXT, trailing_silence_ms=0)
    made = voice_from_recording(
        local_model(variant).folder, variant, draft, sound_file(rate_hz, samples), RecordingLimits()
    )
    np.testing.assert_allclose(made.voice.speaker_vector, expected, atol=TOLERANCE * np.abs(expected).max())
    # The window matters only for recordings longer than it.
    codes = recorded("encoders")[f"{variant}/{rate_hz}/{samples}/codes"]
    assert made.voice.reference_codes is not None
    assert made.voice.reference_codes.shape == codes.shape
    np.testing.assert_array_equal(made.voice.reference_codes[:5], codes[:5])
