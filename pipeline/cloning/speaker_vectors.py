"""Speaker vectors without torch: which model they belong to, and reading them from files of other programs."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from ..checkpoint.safetensors_header import TensorEntry, read_entry
from ..errors import BadVoice, CheckpointError

MAX_VECTOR_FILE_BYTES = 1 << 20
"""A speaker vector has a few thousand numbers."""

_LAYER = "speaker_encoder.fc.weight"


def speaker_space_id(folder: Path) -> str:
    """Identifies the speaker encoder of a checkpoint: 16 hexadecimal digits, "" if it has none.

    Vectors of one encoder are meaningless to another. The digits are a hash of the signs in the encoder's last layer,
    so copies in another precision have the same. Loads one tensor. Raises CheckpointError for unreadable weights.
    """
    try:
        for path in _weight_files(folder):
            if (entry := read_entry(path, _LAYER)) is not None:
                signs = np.packbits(_as_float32(entry) < 0)
                return hashlib.sha256(signs.tobytes()).hexdigest()[:16]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the weights in {folder} cannot be read: {error}") from error
    return ""


def _weight_files(folder: Path) -> list[Path]:
    """The file that may hold the layer; none if the index does not list it."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists() or not index.exists():
        return [single]
    name = json.loads(index.read_text(encoding="utf-8"))["weight_map"].get(_LAYER)
    return [] if name is None else [folder / name]


def _as_float32(entry: TensorEntry) -> NDArray[np.float32]:
    """The tensor's values in one row; NumPy has no bfloat16, which is the upper half of a float32."""
    if entry.dtype == "BF16":
        return (np.frombuffer(entry.data, "<u2").astype("<u4") << 16).view(np.float32)
    return np.frombuffer(entry.data, {"F16": "<f2", "F32": "<f4"}[entry.dtype]).astype(np.float32)


def read_vector(path: Path) -> NDArray[np.float32]:
    """Read a speaker vector, float32 [width], from a .npy, .json or .safetensors file.

    Of several tensors in a file, takes the one named `speaker_vector`. Axes of length 1 are dropped. Pickled files are
    not opened. Raises BadVoice, OSError.
    """
    file = path.read_bytes()
    if len(file) > MAX_VECTOR_FILE_BYTES:
        message = f"a speaker vector file must have at most {MAX_VECTOR_FILE_BYTES} bytes, {path.name} has {len(file)}"
        raise BadVoice(message, param="vector")
    try:
        values = np.asarray(_parse(path, file), np.float32)
    except (ValueError, TypeError, KeyError, EOFError, SafetensorError) as error:
        raise BadVoice(f"{path.name} holds no speaker vector: {error}", param="vector") from error
    vector = values.reshape(-1)
    if not len(vector) or len(vector) != max(values.shape):
        message = f"{path.name} must hold a single row of numbers, got shape {list(values.shape)}"
        raise BadVoice(message, param="vector")
    return vector


def _parse(path: Path, file: bytes) -> Any:
    match path.suffix.lower():
        case ".npy":
            return np.load(io.BytesIO(file), allow_pickle=False)
        case ".json":
            return json.loads(file)
        case ".safetensors":
            tensors = load(file)
            return next(iter(tensors.values())) if len(tensors) == 1 else tensors["speaker_vector"]
        case other:
            raise ValueError(f"the file type must be .npy, .json or .safetensors, got {other or 'none'}")
