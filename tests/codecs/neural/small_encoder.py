"""A codec encoder with a few thousand parameters and fixed random weights."""

from __future__ import annotations

from typing import Any

import torch
from fakes.deterministic import stable_weights
from torch import Tensor
from voxgate.codecs.neural.config import EncoderConfig
from voxgate.codecs.neural.encoder import CodecEncoder

SECTION: dict[str, Any] = {
    "num_filters": 8,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "codebook_size": 32,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "num_quantizers": 18,
    "upsample_groups": 32,
    "sliding_window": 20,
    "frame_rate": 12.5,
}
"""`encoder_config` of a checkpoint."""


def small_encoder(config: EncoderConfig | None = None) -> CodecEncoder:
    encoder = CodecEncoder(config or EncoderConfig.from_document({"encoder_config": SECTION}))
    encoder.load_state_dict(stored_weights(encoder))
    return encoder.eval().requires_grad_(False)


def stored_weights(encoder: torch.nn.Module) -> dict[str, Tensor]:
    return stable_weights({name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()})
