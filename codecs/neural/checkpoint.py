"""Reads the speech tokenizer's `config.json`, and finds the tensors of a checkpoint folder by its files' headers.

Imports no torch: the gateway's start checks checkpoints with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError, safe_open

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

N = TypeVar("N", int, float)


class CodecFormatError(ValueError):
    """The checkpoint cannot be loaded; the message names what is missing or different."""


def read_codec_config(checkpoint_dir: Path) -> Mapping[str, Any]:
    """Reads and parses the speech tokenizer's `config.json`. Raises CodecFormatError."""
    path = checkpoint_dir / "config.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CodecFormatError(f"no codec configuration at {path}: {error.strerror}") from error
    except ValueError as error:
        raise CodecFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise CodecFormatError(f"{path} must hold a JSON object")
    return document


def config_section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a section of the document. Raises CodecFormatError when there is none."""
    section = document.get(name)
    if not isinstance(section, Mapping):
        raise CodecFormatError(f"the codec configuration has no {name}")
    return section


def config_values(name: str, section: Mapping[str, Any], cls: type[DataclassInstance]) -> dict[str, Any]:
    """Returns the values in `section` for the fields of `cls`. Raises CodecFormatError for the first unusable one."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in section:
            value = section[field.name]
            try:
                values[field.name] = _read(str(field.type), value)
            except (TypeError, ValueError) as error:
                raise CodecFormatError(f"{name}.{field.name} must be {field.type}, got {value!r}") from error
    return values


def _read(kind: str, value: Any) -> int | float | tuple[int, ...]:
    if kind.startswith("tuple"):
        if not value:
            raise ValueError("empty")
        return tuple(_positive(int(item)) for item in value)
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError("not a whole number")
    return _positive(int(value)) if kind == "int" else _positive(float(value))


def _positive(value: N) -> N:
    if value <= 0:
        raise ValueError("not positive")
    return value


Shape = tuple[int, ...]
"""Shape of a tensor."""


def find_tensors(
    folder: Path,
    prefix: str,
    expected: Mapping[str, Shape],
    is_ignored: Callable[[str], bool] = lambda name: False,  # noqa: ARG005 - the signature of the callback
) -> dict[Path, list[str]]:
    """Returns the files that hold the tensors under `prefix`, with their names without it; reads headers only.

    Raises CodecFormatError listing the missing, surplus and wrongly shaped names.
    """
    files: dict[Path, list[str]] = {}
    shapes: dict[str, Shape] = {}
    for path in weight_files(folder, prefix):
        with _opened(path) as shard:
            for name in shard.keys():  # noqa: SIM118 - a safe_open handle is not a mapping
                short = name.removeprefix(prefix)
                if name.startswith(prefix) and not is_ignored(short):
                    shapes[short] = tuple(shard.get_slice(name).get_shape())
                    files.setdefault(path, []).append(short)
    if not shapes:
        raise CodecFormatError(f"the weights in {folder} have no tensors named {prefix}...")
    problems = []
    if missing := sorted(expected.keys() - shapes.keys()):
        problems.append(f"missing {_shorten(missing, prefix)}")
    if surplus := sorted(shapes.keys() - expected.keys()):
        problems.append(f"surplus {_shorten(surplus, prefix)}")
    if misshapen := [
        f"{prefix}{name} {list(shape)} instead of {list(expected[name])}"
        for name, shape in shapes.items()
        if name in expected and shape != expected[name]
    ]:
        problems.append(f"wrong shape: {_shorten(misshapen)}")
    if problems:
        raise CodecFormatError(f"the weights in {folder} do not fit: {'; '.join(problems)}")
    return files


def weight_files(folder: Path, prefix: str = "") -> list[Path]:
    """Returns `model.safetensors`, or the shards that the index names for `prefix`. Raises CodecFormatError."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return [single]
    if not index.exists():
        raise CodecFormatError(f"no weights in {folder}: neither {single.name} nor {index.name}")
    try:
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = {file for name, file in shards.items() if name.startswith(prefix)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CodecFormatError(f"{index} has no usable weight_map") from error
    return [folder / name for name in sorted(names)]


def _opened(path: Path) -> Any:
    """Opens a file as a context manager. Raises CodecFormatError."""
    # Only names and shapes are read, and NumPy is loaded already, where torch would take seconds.
    try:
        return safe_open(str(path), framework="np")
    except (OSError, SafetensorError) as error:
        raise CodecFormatError(f"cannot read the weights {path}: {error}") from error


def _shorten(names: list[str], prefix: str = "", limit: int = 8) -> str:
    listed = ", ".join(prefix + name for name in names[:limit])
    return listed + (f" and {len(names) - limit} more" if len(names) > limit else "")
