"""The speaker encoder's dimensions, read from `config.json` of a Base checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...codecs.neural.document import CodecFormatError, typed_values
from ..checkpoint import CheckpointError, read_document
from .mel import BINS, RATE_HZ


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """`speaker_encoder_config`; published files name only `enc_dim`, the rest has the reference's defaults (F.2)."""

    enc_dim: int
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128

    @classmethod
    def from_checkpoint(cls, folder: Path) -> SpeakerEncoderConfig:
        """Read `config.json`. Raises CheckpointError, also when the checkpoint has no speaker encoder."""
        path = folder / "config.json"
        section = read_document(path).get("speaker_encoder_config")
        if not isinstance(section, Mapping):
            raise CheckpointError(f"{path} has no speaker_encoder_config: only Base models can clone a voice")
        return cls.from_section(path, section)

    @classmethod
    def from_section(cls, path: Path, section: Mapping[str, Any]) -> SpeakerEncoderConfig:
        """Read the section of the file at `path`. Raises CheckpointError."""
        try:
            values = typed_values("speaker_encoder_config", section, cls)
        except CodecFormatError as error:
            raise CheckpointError(f"{path}: {error}") from error
        if "enc_dim" not in values:
            raise CheckpointError(f"{path}: speaker_encoder_config.enc_dim is missing")
        config = cls(**values)
        complaints = []
        if section.get("mel_dim", BINS) != BINS or section.get("sample_rate", RATE_HZ) != RATE_HZ:
            complaints.append(f"other input than {BINS} mel bins at {RATE_HZ} Hz")
        widths = config.enc_channels
        if not len(widths) == len(config.enc_kernel_sizes) == len(config.enc_dilations) >= 3:
            complaints.append("enc_channels, enc_kernel_sizes and enc_dilations of different or too small lengths")
        if any(width % config.enc_res2net_scale for width in widths[1:-1]) or config.enc_res2net_scale < 2:
            complaints.append(f"enc_channels that are no multiples of {config.enc_res2net_scale}")
        if len(set(widths[:-1])) > 1:
            complaints.append("enc_channels that differ before the last")
        if complaints:
            raise CheckpointError(f"{path}: this speaker encoder does not support {'; '.join(complaints)}")
        return config
