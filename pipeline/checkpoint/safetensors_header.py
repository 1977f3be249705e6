"""Single entries of safetensors files, read without loading the other tensors.

The library cannot return a tensor's stored bytes, a bfloat16 tensor as NumPy, or the metadata of a file in memory. The
format: an unsigned 64-bit little-endian length, a JSON header of that length, then the tensors' data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

MAX_HEADER_BYTES = 100 << 20
"""The format's own limit."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor as stored: `dtype` is the format's name of its type, such as "BF16"."""

    dtype: str
    data: bytes


def read_entry(path: Path, name: str) -> TensorEntry | None:
    """The tensor `name` of a file; None if the file has none. Raises OSError, and ValueError for a damaged file."""
    with path.open("rb") as file:
        header, data_start = _read_header(file)
        if (entry := header.get(name)) is None:
            return None
        try:
            dtype, (start, end) = entry["dtype"], entry["data_offsets"]
            file.seek(data_start + start)
            return TensorEntry(dtype, file.read(end - start))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name} has a damaged entry for {name}") from error


def read_metadata(file: IO[bytes]) -> dict[str, str]:
    """The metadata of an open file at its start. Raises ValueError for a damaged file."""
    metadata: dict[str, str] = _read_header(file)[0].get("__metadata__") or {}
    return metadata


def _read_header(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins."""
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError("not a safetensors file: its header is too long")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("not a safetensors file: its header is not a JSON object")
    return header, 8 + length
