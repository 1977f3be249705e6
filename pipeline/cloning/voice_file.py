"""One stored voice as a file: safetensors, so that opening a stranger's file runs nothing of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..errors import BadVoice
from ..voice import ClonedVoice

SUFFIX = ".safetensors"
FORMAT = "voxgate-voice-1"
MOST_BYTES = 1 << 20
"""A voice takes some 25 KB; what is far larger is none."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a voice came from. `space` names the speaker encoder whose vectors it belongs to, "" where unknown."""

    checkpoint: str = ""
    """As it was named when the voice was made."""
    space: str = ""
    source: str = ""
    """"recording", "vector", or "blend of A and B"."""
    made: str = ""
    """ISO 8601."""


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A voice with its origin."""

    voice: ClonedVoice
    origin: Origin = Origin()

    @property
    def name(self) -> str:
        return self.voice.name


def to_bytes(stored: StoredVoice) -> bytes:
    """The whole file."""
    voice = stored.voice
    tensors: dict[str, NDArray[Any]] = {"speaker_vector": voice.speaker_vector}
    metadata = {
        "format": FORMAT,
        "name": voice.name,
        "languages": json.dumps(voice.languages),
        "description": voice.description,
        **{field.name: getattr(stored.origin, field.name) for field in fields(Origin)},
    }
    if voice.reference_codes is not None and voice.reference_text is not None:
        tensors["reference_codes"] = voice.reference_codes.astype(np.int16)
        metadata["reference_text"] = voice.reference_text
    file: bytes = save(tensors, metadata)
    return file


def from_bytes(file: bytes) -> StoredVoice:
    """Read a whole file. Raises BadVoice."""
    if len(file) > MOST_BYTES:
        raise BadVoice(f"a voice file has at most {MOST_BYTES} bytes", param="file")
    try:
        tensors = load(file)
        metadata = _metadata(file)
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadVoice(f"this is no voice file: {error}", param="file") from error
    if metadata.get("format") != FORMAT or "speaker_vector" not in tensors:
        raise BadVoice(f"this is no voice file of the format {FORMAT}", param="file")
    try:
        languages = tuple(str(language) for language in json.loads(metadata.get("languages", "[]")))
    except (ValueError, TypeError) as error:
        raise BadVoice("the voice file's languages are no list", param="file") from error
    voice = ClonedVoice(
        name=metadata.get("name", ""),
        speaker_vector=tensors["speaker_vector"],
        reference_text=metadata.get("reference_text"),
        reference_codes=tensors.get("reference_codes"),
        languages=languages,
        description=metadata.get("description", ""),
    )
    return StoredVoice(voice, Origin(**{field.name: metadata.get(field.name, "") for field in fields(Origin)}))


def _metadata(file: bytes) -> dict[str, str]:
    """The library reads the metadata of files only; here the file is in memory and was checked by it already."""
    length = int.from_bytes(file[:8], "little")
    metadata: dict[str, str] = json.loads(file[8 : 8 + length]).get("__metadata__") or {}
    return metadata
