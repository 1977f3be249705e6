"""Speaker vectors from files that other programs write."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from ..errors import BadVoice

MOST_BYTES = 1 << 20


def read_vector(path: Path) -> NDArray[np.float32]:
    """float32 [width] of a .npy, .json or .safetensors file; of several tensors, the one named `speaker_vector`.

    A row among axes of length 1 is a vector too. Raises BadVoice, OSError. Pickled files are not opened.
    """
    file = path.read_bytes()
    if len(file) > MOST_BYTES:
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
