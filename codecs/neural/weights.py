"""Reads from a checkpoint folder exactly the tensors that a module expects; random weights for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

from .checkpoint import Shape, find_tensors
from .config import DecoderConfig
from .decoder_shapes import DECODER_PREFIX, is_encoder_only_tensor, tensor_shapes

M = TypeVar("M", bound=nn.Module)


def read_tensors(
    folder: Path,
    prefix: str,
    expected: Mapping[str, Shape],
    is_ignored: Callable[[str], bool] = lambda name: False,  # noqa: ARG005 - the signature of the callback
) -> dict[str, Tensor]:
    """Reads every tensor under `prefix` as stored, by its name without the prefix; ignores other tensors.

    Raises CodecFormatError listing the missing, surplus and wrongly shaped names.
    """
    tensors: dict[str, Tensor] = {}
    for path, names in find_tensors(folder, prefix, expected, is_ignored).items():
        with safe_open(str(path), framework="pt") as shard:
            tensors |= {name: shard.get_tensor(prefix + name) for name in names}
    return tensors


def load_module_weights(build: Callable[[], M], folder: Path, prefix: str) -> M:
    """Builds a module in float32 with the weights stored under `prefix`, ready for inference.

    The names and shapes of the module's parameters are those that the file must have. Raises CodecFormatError.
    """
    with torch.device("meta"):
        module = build()
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    tensors = {name: tensor.float() for name, tensor in read_tensors(folder, prefix, expected).items()}
    module.load_state_dict(tensors, assign=True)
    return module.eval().requires_grad_(False)


def load_tensors(checkpoint_dir: Path, config: DecoderConfig) -> dict[str, Tensor]:
    """Reads the decoder's tensors as stored, by their names without `decoder.`; ignores the encoder's.

    Raises CodecFormatError listing the missing, surplus and wrongly shaped names.
    """
    return read_tensors(checkpoint_dir, DECODER_PREFIX, tensor_shapes(config), is_ignored=is_encoder_only_tensor)


def random_tensors(config: DecoderConfig, seed: int = 0) -> dict[str, Tensor]:
    """Returns float64 weights of plausible scale, for a configuration without a checkpoint."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith(("layernorm.weight", "norm.weight", "cluster_usage")):
            values = 1 + 0.2 * values.clamp(-2, 2)
        elif name.endswith((".alpha", ".beta", ".bias", ".scale", ".gamma")):
            values = 0.1 * values + name.endswith(".beta")
        elif "embedding_sum" not in name:
            # Snake only adds to its input, so weights of the usual scale would saturate the output.
            values = 0.8 * values / values[0].numel() ** 0.5
        tensors[name] = values
    return tensors
