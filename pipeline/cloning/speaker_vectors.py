"""Which speaker vectors a checkpoint understands: those of its own speaker encoder, told apart by its last layer."""
# TODO-DOC Speaker vectors from files that other programs write.

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

from ..errors import BadVoice, CheckpointError

_LAYER = "speaker_encoder.fc.weight"
_MOST_HEADER_BYTES = 100 << 20  # the format's own limit


def speaker_space_id(folder: Path) -> str:
    """16 hexadecimal digits, the same for every copy of a checkpoint in any precision; "" without a speaker encoder.

    Reads the one tensor it needs and loads no torch. Raises CheckpointError when the weights cannot be read.
    """
    try:
        for path in _files(folder):
            if (layer := _tensor(path)) is not None:
                return hashlib.sha256(_signs(layer)).hexdigest()[:16]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the weights in {folder} cannot be read: {error}") from error
    return ""


def _files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists() or not index.exists():
        return [single]
    place = json.loads(index.read_text(encoding="utf-8"))["weight_map"].get(_LAYER)
    return [] if place is None else [folder / place]


def _tensor(path: Path) -> NDArray[np.float32] | None:
    """The layer as float32, None when the file has none. numpy knows no bfloat16, hence by hand."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"{path.name} is not safetensors")
        entry = json.loads(file.read(length)).get(_LAYER)
        if entry is None:
            return None
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        raw = file.read(end - start)
    if entry["dtype"] == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view(np.float32)
    return np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[entry["dtype"]]).astype(np.float32)


def _signs(layer: NDArray[np.float32]) -> bytes:
    """Rounding to another precision keeps them, and hundreds of thousands of them are as good as a name."""
    return np.packbits(layer < 0).tobytes()


MAX_VECTOR_FILE_BYTES = 1 << 20


def read_vector(path: Path) -> NDArray[np.float32]:
    """float32 [width] of a .npy, .json or .safetensors file; of several tensors, the one named `speaker_vector`.

    A row among axes of length 1 is a vector too. Raises BadVoice, OSError. Pickled files are not opened.
    """
    file = path.read_bytes()
    if len(file) > MAX_VECTOR_FILE_BYTES:
        raise BadVoice(f"{path.name} is too large for a speaker vector", param="vector")
    try:
        values = np.asarray(_values(path, file), np.float32)
    except (ValueError, TypeError, KeyError, EOFError, SafetensorError) as error:
        raise BadVoice(f"{path.name} holds no speaker vector: {error}", param="vector") from error
    vector = values.reshape(-1)
    if not len(vector) or len(vector) != max(values.shape):
        raise BadVoice(f"{path.name} holds {list(values.shape)} numbers, which is no single row", param="vector")
    return vector


def _values(path: Path, file: bytes) -> Any:
    match path.suffix.lower():
        case ".npy":
            return np.load(io.BytesIO(file), allow_pickle=False)
        case ".json":
            return json.loads(file)
        case ".safetensors":
            tensors = load(file)
            return next(iter(tensors.values())) if len(tensors) == 1 else tensors["speaker_vector"]
        case other:
            raise ValueError(f"{other or 'no'} files are not read; .npy, .json and .safetensors are")
