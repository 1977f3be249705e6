"""The decoder's weights, read or made up."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from .config import DecoderConfig
from .decoder_shapes import PREFIX, encoding_only, tensor_shapes
from .stored import read_tensors


def load_tensors(checkpoint_dir: Path, config: DecoderConfig) -> dict[str, Tensor]:
    """Read every tensor under `decoder.` (prefix removed), as stored; encoder tensors are not touched.

    Raises CodecFormatError listing the missing, surplus and wrongly shaped names.
    """
    return read_tensors(checkpoint_dir, PREFIX, tensor_shapes(config), surplus_is_fine=encoding_only)


def random_tensors(config: DecoderConfig, seed: int = 0) -> dict[str, Tensor]:
    """Weights of plausible scale for trying out a configuration without a checkpoint; float64."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith(("layernorm.weight", "norm.weight", "cluster_usage")):
            values = 1 + 0.2 * values.clamp(-2, 2)
        elif name.endswith((".alpha", ".beta", ".bias", ".scale", ".gamma")):
            values = 0.1 * values + name.endswith(".beta")
        elif "embedding_sum" not in name:
            # Snake only ever adds, so weights of the usual scale would drive the output into its limits.
            values = 0.8 * values / values[0].numel() ** 0.5
        tensors[name] = values
    return tensors
