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


def differences(section: Mapping[str, Any], required: Mapping[str, Any]) -> list[str]:
    """Describes the values of `section` that differ from the required ones; absent values and null do not."""
    return [
        f"{name} must be {value!r}, got {section[name]!r}"
        for name, value in required.items()
        if section.get(name) is not None and section[name] != value
    ]


def rope_differences(section: Mapping[str, Any], head_dim: int) -> list[str]:
    """Describes what `section` says of the rotary embedding that is not the ordinary one over `head_dim` channels.

    Sections of M-RoPE change nothing, because all three positions are equal; they must only cover the head.
    """
    problems = differences(section, {"partial_rotary_factor": 1})
    for name in ("rope_scaling", "rope_parameters"):
        rope = section.get(name)
        if rope is None:
            continue
        if not isinstance(rope, Mapping):
            problems.append(f"{name} must be an object or null, got {rope!r}")
            continue
        # "type" is the older name, which the reference implementation prefers.
        kind = rope.get("type") or rope.get("rope_type") or "default"
        if kind != "default":
            problems.append(f"{name} must have the rope_type 'default', got {kind!r}")
        if rope.get("rope_theta", section.get("rope_theta")) != section.get("rope_theta"):
            problems.append(f"{name}.rope_theta must equal rope_theta, got {rope['rope_theta']!r}")
        sections = rope.get("mrope_section")
        if sections is not None and not rope.get("interleaved") and 2 * sum(sections) != head_dim:
            problems.append(f"{name}.mrope_section must add up to half of head_dim {head_dim}, got {sections!r}")
    return problems


Shape = tuple[int, ...]
"""Shape of a tensor."""

STORED_DTYPES = ("BF16", "F16", "F32", "F64")
"""Of weights that are read; those of quantised checkpoints need scales, which nothing applies."""


def find_tensors(
    folder: Path,
    prefix: str,
    expected: Mapping[str, Shape],
    is_ignored: Callable[[str], bool] = lambda name: False,  # noqa: ARG005 - the signature of the callback
) -> dict[Path, list[str]]:
    """Returns the files that hold the tensors under `prefix`, with their names without it; reads headers only.

    Raises CodecFormatError listing the missing, surplus, wrongly shaped and quantised names.
    """
    files: dict[Path, list[str]] = {}
    shapes: dict[str, Shape] = {}
    dtypes: dict[str, str] = {}
    for path in weight_files(folder, prefix):
        with _opened(path) as shard:
            for name in shard.keys():  # noqa: SIM118 - a safe_open handle is not a mapping
                short = name.removeprefix(prefix)
                if name.startswith(prefix) and not is_ignored(short):
                    stored = shard.get_slice(name)
                    shapes[short], dtypes[short] = tuple(stored.get_shape()), stored.get_dtype()
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
    if quantised := [f"{prefix}{name} {dtype}" for name, dtype in dtypes.items() if dtype not in STORED_DTYPES]:
        problems.append(f"dtype must be one of {', '.join(STORED_DTYPES)}: {_shorten(quantised)}")
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
