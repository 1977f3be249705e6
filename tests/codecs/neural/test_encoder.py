"""The codec encoder; tests/reference compares its codes with the reference implementation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.deterministic import noise
from safetensors.torch import save_file
from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.config import EncoderConfig
from voxgate.codecs.neural.decoder_shapes import tensor_shapes
from voxgate.codecs.neural.encoder import CodecEncoder

from .conftest import PUBLISHED
from .small_encoder import SECTION, small_encoder


@pytest.fixture(scope="module")
def encoder() -> CodecEncoder:
    return small_encoder()


def encode(encoder: CodecEncoder, pcm: np.ndarray) -> torch.Tensor:
    return encoder.encode(torch.from_numpy(pcm))


def test_sliding_window_matters_only_beyond_its_length(encoder: CodecEncoder) -> None:
    everything = small_encoder(replace(encoder.config, sliding_window=None))
    pcm = noise(30 * 1920)
    windowed, free = encode(encoder, pcm), encode(everything, pcm)
    assert torch.equal(windowed[:10], free[:10])
    assert not torch.equal(windowed, free)


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (1920, 1), (1921, 2), (24_000, 13)])
def test_partial_frame_makes_a_frame(encoder: CodecEncoder, samples: int, frames: int) -> None:
    codes = encode(encoder, noise(samples))
    assert codes.shape == (frames, 16)
    assert codes.dtype == torch.int64


def test_later_audio_changes_no_complete_frame(encoder: CodecEncoder) -> None:
    pcm = noise(20 * 1920)
    alone = encode(encoder, pcm[: 10 * 1920])
    assert torch.equal(encode(encoder, pcm)[:10], alone)
    assert torch.equal(encode(encoder, np.concatenate([pcm[: 10 * 1920], np.zeros(5000, np.float32)]))[:10], alone)


def test_encoder_loads_by_published_names(tmp_path: Path, encoder: CodecEncoder) -> None:
    tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    save_file({**tensors, "decoder.anything": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"encoder_config": SECTION}))
    loaded = CodecEncoder.from_checkpoint(tmp_path)
    pcm = noise(9600)
    assert torch.equal(encode(loaded, pcm), encode(encoder, pcm))


def test_missing_surplus_and_misshapen_tensors_are_named(tmp_path: Path, encoder: CodecEncoder) -> None:
    tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    del tensors["encoder.downsample.conv.weight"]
    tensors["encoder.encoder.layers.0.conv.bias"] = torch.zeros(3)
    tensors["encoder.extra"] = torch.zeros(3)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"encoder_config": SECTION}))
    with pytest.raises(CodecFormatError) as raised:
        CodecEncoder.from_checkpoint(tmp_path)
    message = str(raised.value)
    assert "missing encoder.downsample.conv.weight" in message
    assert "surplus encoder.extra" in message
    assert "encoder.encoder.layers.0.conv.bias [3] instead of [8]" in message


def test_checkpoint_without_encoder_is_refused(tmp_path: Path) -> None:
    save_file({"decoder.anything": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"encoder_config": SECTION}))
    with pytest.raises(CodecFormatError, match=r"no tensors named encoder\."):
        CodecEncoder.from_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"encoder_config": None}))
    with pytest.raises(CodecFormatError, match="no encoder_config"):
        CodecEncoder.from_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"use_causal_conv": False}, "use_causal_conv"),
        ({"pad_mode": "reflect"}, "pad_mode"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"hidden_size": 30}, "num_attention_heads"),
        ({"num_quantizers": 8}, "16 codes per frame do not fit 8 codebooks"),
        ({"upsampling_ratios": [8, 6, 5]}, "encode_downsample_rate must be 480, got 1920"),
        ({"num_filters": "many"}, "num_filters must be int, got 'many'"),
    ],
)
def test_unsupported_encoder_value_is_named(change: dict[str, Any], complaint: str) -> None:
    document = {"encoder_config": SECTION | change, "encode_downsample_rate": 1920}
    with pytest.raises(CodecFormatError, match=complaint):
        EncoderConfig.from_document(document)


def test_published_sizes() -> None:
    """Encoder and decoder have the tensors of the published file (docs/qwen3_tts.md, sections 11.3, 11.4, 12)."""
    with torch.device("meta"):
        encoder = CodecEncoder(EncoderConfig()).state_dict()
    assert round(sum(tensor.numel() for tensor in encoder.values()) / 1e6, 1) == 56.2
    assert encoder["encoder.layers.12.conv.weight"].shape == (1024, 512, 16)
    assert encoder["quantizer.acoustic_residual_vector_quantizer.layers.30.codebook.embed_sum"].shape == (2048, 256)
    decoder = tensor_shapes(PUBLISHED)
    decoder |= {f"quantizer.rvq_{stack}.input_proj.weight": (256, 512, 1) for stack in ("first", "rest")}
    assert len(encoder) + len(decoder) == 496
    shapes = [*(tensor.shape for tensor in encoder.values()), *decoder.values()]
    assert sum(torch.Size(shape).numel() for shape in shapes) == 170_557_441
