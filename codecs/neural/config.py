"""The codec decoder's dimensions, read from `config.json` of the speech tokenizer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .document import SUPPORTED_RATE_HZ, CodecFormatError, read_document, section_of, typed_values


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
        return cls.from_document(read_document(checkpoint_dir))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DecoderConfig:
        """Read the parsed document. Raises CodecFormatError naming every missing or unusable value."""
        section = section_of(document, "decoder_config")
        missing = [f.name for f in fields(cls) if f.name not in section]
        if missing:
            raise CodecFormatError(f"decoder_config lacks {', '.join(missing)}")
        config = cls(**typed_values("decoder_config", section, cls))
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
