"""Reading single entries of safetensors files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save, save_file
from voxgate.pipeline.checkpoint.safetensors_header import read_entry, read_metadata


def test_entry_holds_stored_bytes_and_type(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    wanted = np.arange(6, dtype=np.float16)
    save_file({"before": np.ones(3), "wanted": wanted}, path)
    entry = read_entry(path, "wanted")
    assert entry is not None
    assert (entry.dtype, entry.data) == ("F16", wanted.tobytes())
    assert read_entry(path, "absent") is None


def test_metadata_is_read_from_memory() -> None:
    assert read_metadata(io.BytesIO(save({"a": np.ones(2)}, {"name": "ada"}))) == {"name": "ada"}
    assert read_metadata(io.BytesIO(save({"a": np.ones(2)}))) == {}


@pytest.mark.parametrize("content", [b"\xff" * 8 + b"{}", b"\x02" + bytes(7) + b"[]", b"\x05" + bytes(7) + b"{"])
def test_damaged_header_raises_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"safetensors|Expecting"):
        read_entry(path, "a")


def test_damaged_entry_raises_value_error(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = b'{"a":{"dtype":"F32"}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="damaged entry"):
        read_entry(path, "a")
