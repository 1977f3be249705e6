"""Residual vector quantization as the codec's encoder does it: one semantic codebook beside acoustic ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .encoder_config import EncoderConfig


class SplitResidualQuantizer(nn.Module):
    """Both stacks quantize the same vectors; of the acoustic one only the first stages make codes."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        semantic = config.num_semantic_quantizers
        self.acoustic_codes = config.valid_quantizers - semantic
        self.semantic_residual_vector_quantizer = ResidualQuantizer(config, semantic)
        self.acoustic_residual_vector_quantizer = ResidualQuantizer(config, config.num_quantizers - semantic)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> int64 [B, T, 16], the semantic codes first."""
        semantic = self.semantic_residual_vector_quantizer
        codes = [*semantic(x, len(semantic.layers)), *self.acoustic_residual_vector_quantizer(x, self.acoustic_codes)]
        return torch.stack(codes, dim=2)


class ResidualQuantizer(nn.Module):
    """Every stage quantizes what the stages before it left over."""

    def __init__(self, config: EncoderConfig, stages: int) -> None:
        super().__init__()
        self.input_proj = nn.Conv1d(config.hidden_size, config.codebook_dim, 1, bias=False)
        # In the file, but only decoding uses it.
        self.output_proj = nn.Conv1d(config.codebook_dim, config.hidden_size, 1, bias=False)
        self.layers = nn.ModuleList(_Stage(config) for _ in range(stages))

    def forward(self, x: Tensor, stages: int) -> list[Tensor]:
        """[B, T, hidden] -> int64 [B, T] for each of the first `stages` stages."""
        residual = self.input_proj(x.transpose(1, 2)).transpose(1, 2)
        codes = []
        for layer in list(self.layers)[:stages]:
            assert isinstance(layer, _Stage)
            table = layer.codebook.table()
            nearest = torch.cdist(residual, table[None]).argmin(dim=2)
            residual = residual - table[nearest]
            codes.append(nearest)
        return codes


class _Stage(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.codebook = Codebook(config)


class Codebook(nn.Module):
    """Entries as training left them: the sum of the vectors that chose an entry, and how many did."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.embed_sum = nn.Parameter(torch.zeros(config.codebook_size, config.codebook_dim))
        self.cluster_usage = nn.Parameter(torch.ones(config.codebook_size))
        self.initialized = nn.Parameter(torch.ones(1))

    def table(self) -> Tensor:
        """[codebook_size, codebook_dim]"""
        return self.embed_sum / self.cluster_usage.clamp(min=1e-5)[:, None]
