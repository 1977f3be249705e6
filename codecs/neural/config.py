"""The codec decoder's dimensions, read from `config.json` of the speech tokenizer."""
# TODO-DOC The codec encoder's dimensions, read from `config.json` of the speech tokenizer.

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from .checkpoint import SUPPORTED_RATE_HZ, CodecFormatError, config_section, config_values, read_codec_config

CodecMode = Literal["stateful", "overlap"]
"""How streams are decoded chunk by chunk; see `streaming.py`."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """`decoder_config` of the published format; every value is read, none has a default of its own."""

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
        """Samples a frame: the product of all upsampling."""
        return math.prod(self.upsampling_ratios) * math.prod(self.upsample_rates)

    @property
    def block_widths(self) -> tuple[int, ...]:
        """Channels entering each vocoder block, and those leaving the last: halved at every block."""
        return tuple(self.decoder_dim >> block for block in range(len(self.upsample_rates) + 1))

    @property
    def exact_left_context(self) -> int:
        """Frames before a chunk that its audio depends on: by pre_conv, attention and vocoder."""
        return 2 + self.num_hidden_layers * (self.sliding_window - 1) + self.vocoder_left_context

    @property
    def vocoder_left_context(self) -> int:
        """Frames of hidden states before a chunk that the vocoder still hears: 10 in the published codec."""
        reach = 0.0  # in frames: each layer adds what it looks back, at its own rate
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
        """Read `config.json`. Raises CodecFormatError, also when the file is absent."""
        return cls.from_document(read_codec_config(checkpoint_dir))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DecoderConfig:
        """Read the parsed document. Raises CodecFormatError naming every missing or unusable value."""
        section = config_section(document, "decoder_config")
        missing = [f.name for f in fields(cls) if f.name not in section]
        if missing:
            raise CodecFormatError(f"decoder_config lacks {', '.join(missing)}")
        config = cls(**config_values("decoder_config", section, cls))
        config._refuse_unsupported(document, section)
        return config

    def _refuse_unsupported(self, document: Mapping[str, Any], section: Mapping[str, Any]) -> None:
        complaints = []
        if section.get("hidden_act", "silu") != "silu":
            complaints.append(f"hidden_act {section['hidden_act']!r} (only 'silu')")
        if section.get("attention_bias", False):
            complaints.append("attention_bias")
        if self.num_attention_heads % self.num_key_value_heads:
            complaints.append("num_attention_heads that is no multiple of num_key_value_heads")
        if self.decoder_dim % (1 << len(self.upsample_rates)):
            complaints.append(f"decoder_dim {self.decoder_dim} that cannot be halved at every block")
        if self.codebook_dim % 2 or self.head_dim % 2:
            complaints.append("odd codebook_dim or head_dim")
        if (rate := document.get("output_sample_rate", SUPPORTED_RATE_HZ)) != SUPPORTED_RATE_HZ:
            complaints.append(f"output_sample_rate {rate} (only {SUPPORTED_RATE_HZ})")
        if (samples := document.get("decode_upsample_rate", self.frame_samples)) != self.frame_samples:
            complaints.append(f"decode_upsample_rate {samples} where the rates multiply to {self.frame_samples}")
        if complaints:
            raise CodecFormatError(f"this codec decoder does not support {'; '.join(complaints)}")


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """`encoder_config` of the published format, which is that of Mimi; what it leaves out has Mimi's value."""

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
    """Positions of 40 ms that attention sees, its own included; None is all that were before."""
    codebook_size: int = 2048
    codebook_dim: int = 256
    num_quantizers: int = 32
    """Codebooks in the file."""
    num_semantic_quantizers: int = 1
    valid_quantizers: int = 16
    """Codebooks that make a frame."""

    DOWNSAMPLING = 2
    """From the transformer's positions to frames."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The convolutions' strides in the order they are run."""
        return tuple(reversed(self.upsampling_ratios))

    @property
    def frame_samples(self) -> int:
        """Samples a frame."""
        return math.prod(self.upsampling_ratios) * self.DOWNSAMPLING

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def from_checkpoint(cls, checkpoint_dir: Path) -> EncoderConfig:
        """Read `config.json`. Raises CodecFormatError, also when the file is absent."""
        return cls.from_document(read_codec_config(checkpoint_dir))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> EncoderConfig:
        """Read the parsed document. Raises CodecFormatError naming every unusable value."""
        section = config_section(document, "encoder_config")
        values = config_values("encoder_config", section, cls)
        if "encoder_valid_num_quantizers" in document:
            values["valid_quantizers"] = document["encoder_valid_num_quantizers"]
        config = cls(**values)
        config._refuse_unsupported(document, section)
        return config

    def _refuse_unsupported(self, document: Mapping[str, Any], section: Mapping[str, Any]) -> None:
        supported = {
            "audio_channels": 1,
            "use_causal_conv": True,
            "use_conv_shortcut": False,
            "pad_mode": "constant",
            "hidden_act": "gelu",
            "attention_bias": False,
            "num_key_value_heads": self.num_attention_heads,
            "vector_quantization_hidden_dimension": self.codebook_dim,
        }
        complaints = [
            f"{name} {section[name]!r} (only {value!r})"
            for name, value in supported.items()
            if section.get(name, value) != value
        ]
        if section.get("head_dim") not in (None, self.head_dim) or self.hidden_size % (2 * self.num_attention_heads):
            complaints.append("attention heads that do not share out hidden_size")
        if not self.num_semantic_quantizers < self.valid_quantizers <= self.num_quantizers:
            complaints.append(f"{self.valid_quantizers} codes a frame out of {self.num_quantizers} codebooks")
        if (rate := document.get("input_sample_rate", SUPPORTED_RATE_HZ)) != SUPPORTED_RATE_HZ:
            complaints.append(f"input_sample_rate {rate} (only {SUPPORTED_RATE_HZ})")
        if (samples := document.get("encode_downsample_rate", self.frame_samples)) != self.frame_samples:
            complaints.append(f"encode_downsample_rate {samples} where the strides multiply to {self.frame_samples}")
        if complaints:
            raise CodecFormatError(f"this codec encoder does not support {'; '.join(complaints)}")
