"""Which tensors a checkpoint folder holds and where, from the files' headers: one safetensors file, or shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .document import CodecFormatError

Shape = tuple[int, ...]


def find_tensors(
    folder: Path,
    prefix: str,
    expected: Mapping[str, Shape],
    surplus_is_fine: Callable[[str], bool] = lambda name: False,  # noqa: ARG005 - the shape of the callback
) -> dict[Path, list[str]]:
    """The files that hold the tensors under `prefix`, with their names without it; reads the files' headers only.

    Raises CodecFormatError listing the missing, surplus and wrongly shaped names.
    """
    places: dict[Path, list[str]] = {}
    shapes: dict[str, Shape] = {}
    for path in weight_files(folder, prefix):
        with _opened(path) as shard:
            for name in shard.keys():  # noqa: SIM118 - a safe_open handle is no mapping
                short = name.removeprefix(prefix)
                if name.startswith(prefix) and not surplus_is_fine(short):
                    shapes[short] = tuple(shard.get_slice(name).get_shape())
                    places.setdefault(path, []).append(short)
    if not shapes:
        raise CodecFormatError(f"the weights in {folder} have no tensors named {prefix}...")
    complaints = []
    if missing := sorted(expected.keys() - shapes.keys()):
        complaints.append(f"missing {_some(missing, prefix)}")
    if surplus := sorted(shapes.keys() - expected.keys()):
        complaints.append(f"surplus {_some(surplus, prefix)}")
    if misshapen := [
        f"{prefix}{name} {list(shape)} instead of {list(expected[name])}"
        for name, shape in shapes.items()
        if name in expected and shape != expected[name]
    ]:
        complaints.append(f"wrong shape: {_some(misshapen)}")
    if complaints:
        raise CodecFormatError(f"the weights in {folder} do not fit: {'; '.join(complaints)}")
    return places


def weight_files(folder: Path, prefix: str = "") -> list[Path]:
    """`model.safetensors`, or the shards that its index names for tensors under `prefix`. Raises CodecFormatError."""
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


def _opened(path: Path) -> Any:
    """A handle that is its own context. Raises CodecFormatError."""
    # Nothing is read but names and shapes, and NumPy is there already where torch would take seconds to load.
    try:
        return safe_open(str(path), framework="np")
    except (OSError, SafetensorError) as error:
        raise CodecFormatError(f"cannot read the weights {path}: {error}") from error


def _some(names: list[str], prefix: str = "", limit: int = 8) -> str:
    shown = ", ".join(prefix + name for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
