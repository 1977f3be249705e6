"""Reading exactly the tensors a module expects out of a checkpoint folder: one safetensors file, or shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from .document import CodecFormatError

Shape = tuple[int, ...]
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
    found: dict[str, Tensor] = {}
    misshapen: list[str] = []
    with ExitStack() as stack:
        for path in _shards(folder, prefix):
            try:
                shard = stack.enter_context(safe_open(str(path), framework="pt"))
            except (OSError, SafetensorError) as error:
                raise CodecFormatError(f"cannot read the weights {path}: {error}") from error
            for name in shard.keys():  # noqa: SIM118 - a safe_open handle is no mapping
                if not name.startswith(prefix):
                    continue
                short = name.removeprefix(prefix)
                shape = tuple(shard.get_slice(name).get_shape())
                if short in expected and shape != expected[short]:
                    misshapen.append(f"{name} {list(shape)} instead of {list(expected[short])}")
                if not surplus_is_fine(short):
                    found[short] = shard.get_tensor(name)
    if not found:
        raise CodecFormatError(f"the weights in {folder} have no tensors named {prefix}...")
    complaints = []
    if missing := sorted(expected.keys() - found.keys()):
        complaints.append(f"missing {_some(missing, prefix)}")
    if surplus := sorted(found.keys() - expected.keys()):
        complaints.append(f"surplus {_some(surplus, prefix)}")
    if misshapen:
        complaints.append(f"wrong shape: {_some(misshapen)}")
    if complaints:
        raise CodecFormatError(f"the weights in {folder} do not fit: {'; '.join(complaints)}")
    return found


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


def _shards(folder: Path, prefix: str) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return [single]
    if not index.exists():
        raise CodecFormatError(f"no weights in {folder}: neither {single.name} nor {index.name}")
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = {file for name, file in places.items() if name.startswith(prefix)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CodecFormatError(f"{index} has no usable weight_map") from error
    return [folder / name for name in sorted(names)]


def _some(names: list[str], prefix: str = "", limit: int = 8) -> str:
    shown = ", ".join(prefix + name for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
