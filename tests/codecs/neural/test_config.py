from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.config import DecoderConfig, EncoderConfig

from .conftest import DEMO, SMALL, minimal_document


def test_config_reads_its_own_values() -> None:
    assert DecoderConfig.from_document(json.loads(json.dumps(minimal_document()))) == SMALL


def test_demo_voice_has_the_published_frame_size() -> None:
    config = DecoderConfig.from_checkpoint(DEMO)
    assert config.frame_samples == 1920
    assert config.vocoder_left_context == 10
    assert config.exact_left_context == 2 + 6 * 23 + 10


@pytest.mark.parametrize("name", [field.name for field in fields(DecoderConfig)])
def test_every_field_is_required(name: str) -> None:
    document = minimal_document()
    del document["decoder_config"][name]
    with pytest.raises(CodecFormatError, match=rf"lacks {name}\b"):
        DecoderConfig.from_document(document)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"head_dim": 6.5}, "head_dim"),
        ({"num_quantizers": True}, "num_quantizers"),
        ({"upsample_rates": []}, "upsample_rates"),
        ({"upsample_rates": 8}, "upsample_rates"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"decoder_dim": 40}, "decoder_dim"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling must have .* got 'linear'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1, got 0.5"),
    ],
)
def test_unsupported_value_is_named(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CodecFormatError, match=complaint):
        DecoderConfig.from_document(minimal_document(**change))


@pytest.mark.parametrize("config", [DecoderConfig, EncoderConfig])
def test_another_codec_is_refused_by_name(config: type[DecoderConfig | EncoderConfig]) -> None:
    document = {"model_type": "qwen3_tts_tokenizer_25hz"}
    with pytest.raises(CodecFormatError, match="must be 'qwen3_tts_tokenizer_12hz', got 'qwen3_tts_tokenizer_25hz'"):
        config.from_document(document)


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_rate": 16_000},
        {"_frame_rate": 25.0},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ],
)
def test_unsupported_value_of_the_encoder_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(CodecFormatError, match=next(iter(change))):
        EncoderConfig.from_document({"encoder_config": change})


@pytest.mark.parametrize("key", ["output_sample_rate", "decode_upsample_rate"])
def test_other_sample_rate_is_refused(key: str) -> None:
    with pytest.raises(CodecFormatError, match=key):
        DecoderConfig.from_document(minimal_document() | {key: 1600})


@pytest.mark.parametrize("text", [None, "{", '{"encoder_config": null}'])
def test_unreadable_file_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CodecFormatError, match=r"config\.json|decoder_config"):
        DecoderConfig.from_checkpoint(tmp_path)
