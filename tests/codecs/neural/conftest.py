"""Small codecs with random weights, and the demo voice's."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.weights import load_tensors, random_tensors

from .oracle import OracleDecoder

DEMO = Path(__file__).parents[3] / "voices" / "demo" / "speech_tokenizer"

SMALL = DecoderConfig(
    codebook_size=32,
    codebook_dim=16,
    num_quantizers=16,
    latent_dim=12,
    hidden_size=20,
    intermediate_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    sliding_window=6,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    decoder_dim=32,
    upsampling_ratios=(2, 2),
    upsample_rates=(8, 5, 4, 3),
)

PUBLISHED = DecoderConfig(
    codebook_size=2048,
    codebook_dim=512,
    num_quantizers=16,
    latent_dim=1024,
    hidden_size=512,
    intermediate_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_dim=64,
    sliding_window=72,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    decoder_dim=1536,
    upsampling_ratios=(2, 2),
    upsample_rates=(8, 5, 4, 3),
)
"""Configuration of the published decoder (docs/qwen3_tts.md, section 8.1)."""


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small() -> CodecDecoder:
    return CodecDecoder(SMALL, random_tensors(SMALL), torch.float64)


@pytest.fixture(scope="session")
def small_oracle() -> OracleDecoder:
    return OracleDecoder(asdict(SMALL), random_tensors(SMALL), torch.float64)


@pytest.fixture(scope="session")
def demo() -> CodecDecoder:
    return CodecDecoder.from_checkpoint(DEMO)


@pytest.fixture(scope="session")
def demo_oracle() -> OracleDecoder:
    config = DecoderConfig.from_checkpoint(DEMO)
    return OracleDecoder(asdict(config), load_tensors(DEMO, config), torch.float32)


def random_codes(decoder: CodecDecoder, rows: int, frames: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, frames, decoder.config.num_quantizers)
    return torch.randint(0, decoder.config.codebook_size, shape, generator=generator)


def minimal_document(**changes: Any) -> dict[str, Any]:
    return {"decoder_config": asdict(SMALL) | changes, "encoder_config": None}
