"""The speaker encoder; tests/reference compares its vectors with those of the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.deterministic import noise
from safetensors.torch import save_file
from voxgate.pipeline.cloning.speaker_encoder import (
    MIN_SAMPLES,
    SpeakerEncoder,
    SpeakerEncoderConfig,
    log_mel,
    mel_filters,
)
from voxgate.pipeline.errors import CheckpointError

from .small_speaker import SECTION, small_speaker_encoder


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    return small_speaker_encoder()


def test_mel_filters_have_equal_area() -> None:
    filters = mel_filters().double()
    assert filters.shape == (128, 513)
    hertz = 12_000 / 512
    areas = filters.sum(dim=1)[60:] * hertz  # lower filters are as narrow as the spectrum's bins
    assert torch.allclose(areas, torch.ones_like(areas), atol=0.1)
    peaks_hz = filters.argmax(dim=1) * hertz
    assert bool((peaks_hz.diff() >= 0).all())
    assert 11_500 < peaks_hz[-1] < 12_000


def test_tone_is_loudest_in_its_bin() -> None:
    tone = torch.sin(torch.arange(24_000) * (2 * np.pi * 1000 / 24_000)).float()
    spectrum = log_mel(tone)
    assert spectrum.shape == (24_000 // 256, 128)
    loudest = int(spectrum.mean(dim=0).argmax())
    assert int(mel_filters()[:, round(1000 / 12_000 * 512)].argmax()) == loudest


def test_shortest_audio_and_silence_give_finite_vectors(encoder: SpeakerEncoder) -> None:
    assert log_mel(torch.zeros(MIN_SAMPLES)).shape == (1, 128)
    assert encoder.encode(torch.zeros(2400)).isfinite().all()


def test_weights_in_half_precision_are_loaded(tmp_path: Path, encoder: SpeakerEncoder) -> None:
    halves = {f"speaker_encoder.{name}": tensor.bfloat16() for name, tensor in encoder.state_dict().items()}
    save_file({**halves, "talker.anything": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"speaker_encoder_config": SECTION}))
    loaded = SpeakerEncoder.from_checkpoint(tmp_path)
    assert loaded.fc.weight.dtype == torch.float32
    pcm = torch.from_numpy(noise(24_000))
    similarity = torch.nn.functional.cosine_similarity(loaded.encode(pcm), encoder.encode(pcm), dim=0)
    assert similarity > 0.999


def test_model_without_speaker_encoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"tts_model_type": "custom_voice"}))
    with pytest.raises(CheckpointError, match="only Base models"):
        SpeakerEncoder.from_checkpoint(tmp_path)


def test_weights_of_wrong_shape_are_named(tmp_path: Path, encoder: SpeakerEncoder) -> None:
    tensors = {f"speaker_encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    tensors["speaker_encoder.fc.weight"] = torch.zeros(7, 96, 1)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"speaker_encoder_config": SECTION}))
    with pytest.raises(CheckpointError, match=r"speaker_encoder\.fc\.weight \[7, 96, 1\] instead of \[24, 96, 1\]"):
        SpeakerEncoder.from_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "enc_dim is missing"),
        ({"enc_dim": 24, "sample_rate": 16_000}, "24000 Hz"),
        ({"enc_dim": 24, "enc_channels": [16, 16, 48]}, "different or too short lengths"),
        ({"enc_dim": 24, "enc_channels": [20, 20, 20, 20, 60]}, "multiples of 8"),
        ({"enc_dim": "wide"}, "enc_dim must be int, got 'wide'"),
    ],
)
def test_unsupported_configuration_is_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        SpeakerEncoderConfig.from_section(Path("config.json"), section)


@pytest.mark.parametrize(("width", "millions"), [(1024, 8.85), (2048, 12.0)])
def test_published_sizes(width: int, millions: float) -> None:
    """Tensor names, shapes and counts of the published encoders (`docs/qwen3_tts.md`, section 11.2)."""
    with torch.device("meta"):
        published = SpeakerEncoder(SpeakerEncoderConfig(enc_dim=width)).state_dict()
    assert len(published) == 76
    assert sum(tensor.numel() for tensor in published.values()) / 1e6 == pytest.approx(millions, abs=0.01)
    assert published["blocks.3.res2net_block.blocks.6.conv.weight"].shape == (64, 64, 3)
    assert published["mfa.conv.weight"].shape == (1536, 1536, 1)
    assert published["asp.tdnn.conv.weight"].shape == (128, 4608, 1)
