"""The demo voice as a Base model: its talker and codec, with small untrained encoders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from voxgate.codecs.neural.config import EncoderConfig
from voxgate.codecs.neural.encoder import CodecEncoder
from voxgate.pipeline.cloning.speaker_encoder import SpeakerEncoder, SpeakerEncoderConfig

from ..deterministic import stable_weights

SPEAKER_SECTION: dict[str, Any] = {
    "enc_dim": 320,
    "enc_channels": [16, 16, 16, 16, 48],
    "enc_attention_channels": 8,
    "enc_se_channels": 8,
}
CODEC_SECTION: dict[str, Any] = {
    "num_filters": 4,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "codebook_size": 512,
    "codebook_dim": 8,
    "vector_quantization_hidden_dimension": 8,
    "num_quantizers": 16,
}
SPREAD = 0.02
"""How far a recording moves the speaker vector from that of the voice heart."""


def write_demo_base(folder: Path, demo: Path) -> Path:
    """Write a checkpoint to `folder` that clones every recording to nearly the voice heart of the checkpoint `demo`."""
    shutil.copytree(demo, folder)
    config = json.loads((demo / "config.json").read_text())
    talker = config["talker_config"]
    row = talker["spk_id"]["heart"]
    talker["spk_id"], talker["spk_is_dialect"] = {}, {}
    config |= {"tts_model_type": "base", "speaker_encoder_config": SPEAKER_SECTION}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "voice.toml").write_text((demo / "voice.toml").read_text().partition("[voice.")[0])
    weights = load_file(demo / "model.safetensors")
    speaker = SpeakerEncoder(SpeakerEncoderConfig.from_section(folder / "config.json", SPEAKER_SECTION))
    listening = _weights(speaker)
    listening["fc.weight"] *= SPREAD
    listening["fc.bias"] = weights["talker.model.codec_embedding.weight"][row].float().clone()
    save_file(weights | _named("speaker_encoder.", listening), folder / "model.safetensors")
    tokenizer = folder / "speech_tokenizer"
    codec = json.loads((tokenizer / "config.json").read_text()) | {"encoder_config": CODEC_SECTION}
    (tokenizer / "config.json").write_text(json.dumps(codec))
    encoder = CodecEncoder(EncoderConfig.from_document(codec))
    decoder_weights = load_file(tokenizer / "model.safetensors")
    save_file(decoder_weights | _named("encoder.", _weights(encoder)), tokenizer / "model.safetensors")
    return folder


def _weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return stable_weights({name: tuple(tensor.shape) for name, tensor in module.state_dict().items()})


def _named(prefix: str, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in weights.items()}
