"""The identity of a checkpoint: what two gateways compare to know that they speak with the same model."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..errors import CheckpointError

SPEECH_VERSION = 1
"""Grows with a change of this program after which equal text, options and seed give other codes or other audio."""
_WEIGHT_BYTES = 1 << 20
"""Bytes at each end of a file of weights that are read: all of it would take seconds."""
_IDENTITY_CHARACTERS = 32
_WEIGHTS = ".safetensors"
_CONTENT = (_WEIGHTS, ".json", ".toml", ".txt", ".model")
"""Endings of the files that decide how a model speaks."""


def checkpoint_identity(folder: Path) -> str:
    """Returns 32 hexadecimal digits: a digest of SPEECH_VERSION, and of the names, sizes and contents of the files.

    Of weights, both ends count: their headers, which name and place every tensor, and the last ones. Raises
    CheckpointError for a file that cannot be read.
    """
    digest = hashlib.sha256(f"voxgate speech {SPEECH_VERSION}".encode())
    for path in sorted(each for each in folder.rglob("*") if each.suffix in _CONTENT):
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                content = file.read(_WEIGHT_BYTES if path.suffix == _WEIGHTS else -1)
                if path.suffix == _WEIGHTS and size > 2 * _WEIGHT_BYTES:
                    file.seek(-_WEIGHT_BYTES, 2)
                content += file.read()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        digest.update(f"\0{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_IDENTITY_CHARACTERS]
