"""Reading exactly the tensors a module expects out of a checkpoint folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

from .tensor_files import Shape, find_tensors

M = TypeVar("M", bound=nn.Module)


def read_tensors(
    folder: Path,
    prefix: str,
    expected: Mapping[str, Shape],
    surplus_is_fine: Callable[[str], bool] = lambda name: False,  # noqa: ARG005 - the shape of the callback
) -> dict[str, Tensor]:
    """Read every tensor under `prefix`, by its name without it, as stored; other tensors are not touched.

    Raises CodecFormatError listing the missing, surplus and wrongly shaped names.
    """
    tensors: dict[str, Tensor] = {}
    for path, names in find_tensors(folder, prefix, expected, surplus_is_fine).items():
        with safe_open(str(path), framework="pt") as shard:
            tensors |= {name: shard.get_tensor(prefix + name) for name in names}
    return tensors


def build_loaded(build: Callable[[], M], folder: Path, prefix: str) -> M:
    """The module that `build` makes, in float32, with the weights stored under `prefix` and ready to infer.

    The module's own names and shapes are those that the format has to have. Raises CodecFormatError.
    """
    with torch.device("meta"):
        module = build()
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    tensors = {name: tensor.float() for name, tensor in read_tensors(folder, prefix, expected).items()}
    module.load_state_dict(tensors, assign=True)
    return module.eval().requires_grad_(False)
