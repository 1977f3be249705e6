"""Dimensions of the codec's decoder and encoder, read from `config.json` of the speech tokenizer. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..pcm import SAMPLE_RATE_HZ
from .checkpoint import (
    CodecFormatError,
    config_section,
    config_values,
    differences,
    read_codec_config,
    rope_differences,
)

TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"
"""`model_type` of the codec, and `tokenizer_type` of the talkers that speak its codes."""

CodecMode = Literal["stateful", "overlap"]
"""How streams are decoded chunk by chunk; see `streaming.py`."""

KEPT_STATES = 32
"""States that a decoder keeps besides those of its streams: of references behind which many streams begin."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """`decoder_config` of the published format (docs/qwen3_tts.md, section 8.1); no value has a default."""

    codebook_size: int
    codebook_dim: int
    num_quantizers: int
    latent_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int
    rope_theta: float
    rms_norm_eps: float
    decoder_dim: int
    upsampling_ratios: tuple[int, ...]
    upsample_rates: tuple[int, ...]

    @property
    def frame_samples(self) -> int:
        """Samples per frame: the product of all upsampling factors."""
        return math.prod(self.upsampling_ratios) * math.prod(self.upsample_rates)

    @property
    def block_widths(self) -> tuple[int, ...]:
        """Input channels of each vocoder block, and output channels of the last; each block halves them."""
        return tuple(self.decoder_dim >> block for block in range(len(self.upsample_rates) + 1))

    @property
    def exact_left_context(self) -> int:
        """Frames before a chunk on which its audio depends: by pre_conv, attention and vocoder (section 8.3)."""
        return 2 + self.num_hidden_layers * (self.sliding_window - 1) + self.vocoder_left_context

    @property
    def vocoder_left_context(self) -> int:
        """Frames of hidden states before a chunk on which the vocoder depends: 10 in the published codec."""
        reach = 0.0  # in frames; each layer adds its own left context, at its own rate
        rate = 1
        for ratio in self.upsampling_ratios:
            rate *= ratio
            reach += 6 / rate
        reach += 6 / rate
        for up in self.upsample_rates:
            reach += 1 / rate
            rate *= up
            reach += 6 * (1 + 3 + 9) / rate
        reach += 6 / rate
        return math.ceil(reach - 1e-9)

    @classmethod
    def from_checkpoint(cls, checkpoint_dir: Path) -> DecoderConfig:
        """Reads `config.json`. Raises CodecFormatError, also when there is no such file."""
        return cls.from_document(read_codec_config(checkpoint_dir))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DecoderConfig:
        """Reads the parsed document. Raises CodecFormatError naming every missing or unsupported value."""
        _refuse_other_codecs(document)
        section = config_section(document, "decoder_config")
        missing = [f.name for f in fields(cls) if f.name not in section]
        if missing:
            raise CodecFormatError(f"decoder_config lacks {', '.join(missing)}")
        config = cls(**config_values("decoder_config", section, cls))
        config._refuse_unsupported(document, section)
        return config

    def _refuse_unsupported(self, document: Mapping[str, Any], section: Mapping[str, Any]) -> None:
        problems = differences(section, {"hidden_act": "silu", "attention_bias": False})
        problems += rope_differences(section, self.head_dim)
        problems += differences(
            document, {"output_sample_rate": SAMPLE_RATE_HZ, "decode_upsample_rate": self.frame_samples}
        )
        if self.num_attention_heads % self.num_key_value_heads:
            problems.append("num_attention_heads must be a multiple of num_key_value_heads")
        if self.decoder_dim % (1 << len(self.upsample_rates)):
            problems.append(f"decoder_dim must be divisible by 2 at every block, got {self.decoder_dim}")
        if self.codebook_dim % 2 or self.head_dim % 2:
            problems.append("codebook_dim and head_dim must be even")
        if problems:
            raise CodecFormatError(f"unsupported codec decoder: {'; '.join(problems)}")


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """`encoder_config` of the published format, which is that of Mimi; absent values are Mimi's."""

    num_filters: int = 64
    kernel_size: int = 7
    last_kernel_size: int = 3
    residual_kernel_size: int = 3
    num_residual_layers: int = 1
    dilation_growth_rate: int = 2
    compress: int = 2
    upsampling_ratios: tuple[int, ...] = (8, 6, 5, 4)
    hidden_size: int = 512
    intermediate_size: int = 2048
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    sliding_window: int | None = 250
    """Positions of 40 ms that attention sees, its own included; None: all earlier ones."""
    codebook_size: int = 2048
    codebook_dim: int = 256
    num_quantizers: int = 32
    """Codebooks in the file."""
    num_semantic_quantizers: int = 1
    valid_quantizers: int = 16
    """Codebooks of a frame."""

    DOWNSAMPLING = 2
    """Positions of the transformer per frame."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the convolutions in their order."""
        return tuple(reversed(self.upsampling_ratios))

    @property
    def frame_samples(self) -> int:
        """Samples per frame."""
        return math.prod(self.upsampling_ratios) * self.DOWNSAMPLING

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def from_checkpoint(cls, checkpoint_dir: Path) -> EncoderConfig:
        """Reads `config.json`. Raises CodecFormatError, also when there is no such file."""
        return cls.from_document(read_codec_config(checkpoint_dir))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> EncoderConfig:
        """Reads the parsed document. Raises CodecFormatError naming every unsupported value."""
        _refuse_other_codecs(document)
        section = config_section(document, "encoder_config")
        values = config_values("encoder_config", section, cls)
        if "encoder_valid_num_quantizers" in document:
            values["valid_quantizers"] = document["encoder_valid_num_quantizers"]
        config = cls(**values)
        config._refuse_unsupported(document, section)
        return config

    def _refuse_unsupported(self, document: Mapping[str, Any], section: Mapping[str, Any]) -> None:
        required = {
            "audio_channels": 1,
            "use_causal_conv": True,
            "use_conv_shortcut": False,
            "pad_mode": "constant",
            "hidden_act": "gelu",
            "attention_bias": False,
            "num_key_value_heads": self.num_attention_heads,
            "vector_quantization_hidden_dimension": self.codebook_dim,
            "sampling_rate": SAMPLE_RATE_HZ,
            "frame_rate": SAMPLE_RATE_HZ / self.frame_samples,
            "_frame_rate": SAMPLE_RATE_HZ / self.frame_samples,
        }
        problems = differences(section, required)
        problems += rope_differences(section, self.head_dim)
        problems += differences(
            document, {"input_sample_rate": SAMPLE_RATE_HZ, "encode_downsample_rate": self.frame_samples}
        )
        if section.get("head_dim") not in (None, self.head_dim) or self.hidden_size % (2 * self.num_attention_heads):
            problems.append(
                "hidden_size must be a multiple of two times num_attention_heads, and head_dim the quotient"
            )
        if not self.num_semantic_quantizers < self.valid_quantizers <= self.num_quantizers:
            problems.append(f"{self.valid_quantizers} codes per frame do not fit {self.num_quantizers} codebooks")
        if problems:
            raise CodecFormatError(f"unsupported codec encoder: {'; '.join(problems)}")


def _refuse_other_codecs(document: Mapping[str, Any]) -> None:
    """Raises CodecFormatError for the configuration of another codec, such as that of 25 Hz."""
    if problems := differences(document, {"model_type": TOKENIZER_TYPE}):
        raise CodecFormatError(f"unsupported codec: {problems[0]}")
