"""A speaker encoder with a few thousand deterministic weights."""

from __future__ import annotations

from typing import Any

from fakes.deterministic import stable_weights
from voxgate.pipeline.cloning.speaker_encoder import SpeakerEncoder, SpeakerEncoderConfig

SECTION: dict[str, Any] = {
    "enc_dim": 24,
    "enc_channels": [16, 16, 16, 16, 48],
    "enc_attention_channels": 8,
    "enc_se_channels": 8,
}
"""`speaker_encoder_config` of a checkpoint."""


def small_speaker_encoder() -> SpeakerEncoder:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in SECTION.items()}
    encoder = SpeakerEncoder(SpeakerEncoderConfig(**fields))
    shapes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    encoder.load_state_dict(stable_weights(shapes))
    return encoder.eval().requires_grad_(False)
