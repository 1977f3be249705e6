"""Stored voices: their file format, and the folder that holds one file per voice.

Voice files are safetensors, which execute no code when opened. They are written completely or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..checkpoint.safetensors_header import read_metadata
from ..cloned_voice import ClonedVoice
from ..errors import BadVoice, TooManyVoices, UnknownVoice, VoiceExists
from ..interface import VoiceOwnership

SUFFIX = ".safetensors"
FORMAT = "voxgate-voice-1"
_SHARED = "yes"
MAX_VOICE_FILE_BYTES = 1 << 20
"""Limit of a voice file; a voice takes about 25 KB."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_VOICES = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VoiceOrigin:
    """How a voice was made."""

    checkpoint: str = ""
    """The checkpoint's name when the voice was made."""
    space: str = ""
    """`speaker_space_id` of the model that its vector belongs to, "" if unknown."""
    source: str = ""
    """"recording", "vector", or "blend of A and B at WEIGHT"."""
    made: str = ""
    """Time, ISO 8601."""


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A voice with its origin."""

    voice: ClonedVoice
    origin: VoiceOrigin = VoiceOrigin()

    @property
    def name(self) -> str:
        """The voice's name."""
        return self.voice.name

    def owned_by(self, ownership: VoiceOwnership) -> StoredVoice:
        """The same voice with another ownership."""
        return replace(self, voice=replace(self.voice, ownership=ownership))


class VoiceStore:
    """The folder of stored voices, by name; other processes may add and remove voices at the same time.

    All methods raise OSError when the file system fails, besides the errors that they name.
    """

    def __init__(self, folder: Path, max_voices: int = MAX_VOICES) -> None:
        self.folder = folder
        self._max_voices = max_voices

    def versions(self) -> dict[str, tuple[int, int, int]]:
        """For every name a value that changes when its file is replaced; does not read the files."""
        return {path.stem: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in self._files()}

    def names(self) -> list[str]:
        """Names of all voice files, in order."""
        return [path.stem for path, _ in self._files()]

    def load(self, name: str) -> StoredVoice:
        """Read one voice. Raises UnknownVoice, BadVoice."""
        name = validated_name(name)
        path = self._path(name)
        try:
            with path.open("rb") as file:
                # One byte more than the limit is enough to reject a larger file.
                stored = parse_voice(file.read(MAX_VOICE_FILE_BYTES + 1))
        except FileNotFoundError:
            raise UnknownVoice(f"no voice {name!r} in {self.folder}", param="name") from None
        if stored.name != name:
            raise BadVoice(f"{path.name} holds a voice named {stored.name!r}", param="name")
        return stored

    def load_all(self, names: Iterable[str] | None = None) -> dict[str, StoredVoice]:
        """Read the voices `names`, or all; logs and omits those that cannot be read."""
        voices = {}
        for name in self.names() if names is None else names:
            try:
                voices[name] = self.load(name)
            except UnknownVoice:
                continue  # removed since it was listed
            except (BadVoice, OSError) as error:
                log.warning("voice %s is not offered: %s (%s)", name, error, self._path(name))
        return voices

    def add(self, stored: StoredVoice) -> None:
        """Store a new voice. Raises BadVoice for its name, VoiceExists, TooManyVoices; then no file is left behind."""
        name = validated_name(stored.name)
        if name != stored.name:
            raise BadVoice(f"a stored voice's name must be in lower case, got {stored.name!r}", param="name")
        self.folder.mkdir(parents=True, exist_ok=True)
        if len(self.names()) >= self._max_voices:
            raise TooManyVoices(f"at most {self._max_voices} voices can be stored; remove one first")
        handle, draft = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(serialize_voice(stored))
                file.flush()
                os.fsync(file.fileno())
            _move_without_replacing(draft, self._path(name))
        except FileExistsError:
            raise VoiceExists(f"a voice named {name!r} exists already; remove it first", param="name") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)  # noqa: PTH108 - mkstemp returns a string

    def remove(self, name: str) -> None:
        """Delete a voice, readable or not. Raises UnknownVoice, BadVoice."""
        name = validated_name(name)
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise UnknownVoice(f"no voice {name!r} in {self.folder}", param="name") from None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                with contextlib.suppress(FileNotFoundError):
                    if NAME.fullmatch(path.stem) and path.is_file():
                        found.append((path, path.stat()))
        return found


def _move_without_replacing(draft: str, path: Path) -> None:
    """Give the draft its final name by a link, because a rename would replace an existing file.

    Raises FileExistsError.
    """
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # A file system without hard links: two processes could still add the same name between these two calls.
        if path.exists():
            raise FileExistsError(path) from None
        Path(draft).rename(path)


def validated_name(name: str) -> str:
    """The name in lower case. Raises BadVoice unless it is a safe file name."""
    name = name.lower()
    if not NAME.fullmatch(name):
        message = "a voice's name must have 1 to 64 letters a to z, digits, _ or -, and begin with a letter or digit"
        raise BadVoice(message, param="name")
    return name


def serialize_voice(stored: StoredVoice) -> bytes:
    """The voice as a file."""
    voice = stored.voice
    tensors: dict[str, NDArray[Any]] = {"speaker_vector": voice.speaker_vector}
    metadata = {
        "format": FORMAT,
        "name": voice.name,
        "languages": json.dumps(voice.languages),
        "description": voice.description,
        "owner": voice.ownership.owner,
        "shared": _SHARED if voice.ownership.shared else "",
        **{field.name: getattr(stored.origin, field.name) for field in fields(VoiceOrigin)},
    }
    if voice.reference_codes is not None and voice.reference_text is not None:
        tensors["reference_codes"] = voice.reference_codes.astype(np.int16)
        metadata["reference_text"] = voice.reference_text
    file: bytes = save(tensors, metadata)
    return file


def parse_voice(file: bytes) -> StoredVoice:
    """The voice in a file. Raises BadVoice."""
    if len(file) > MAX_VOICE_FILE_BYTES:
        raise BadVoice(f"a voice file must have at most {MAX_VOICE_FILE_BYTES} bytes", param="file")
    try:
        tensors = load(file)
        # The library returns no metadata of files in memory.
        metadata = read_metadata(io.BytesIO(file))
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadVoice(f"not a voice file: {error}", param="file") from error
    if metadata.get("format") != FORMAT or "speaker_vector" not in tensors:
        raise BadVoice(f"not a voice file of the format {FORMAT}", param="file")
    try:
        languages = tuple(str(language) for language in json.loads(metadata.get("languages", "[]")))
    except (ValueError, TypeError) as error:
        raise BadVoice("the voice file's languages must be a list", param="file") from error
    voice = ClonedVoice(
        name=metadata.get("name", ""),
        speaker_vector=tensors["speaker_vector"],
        reference_text=metadata.get("reference_text"),
        reference_codes=tensors.get("reference_codes"),
        languages=languages,
        description=metadata.get("description", ""),
        ownership=VoiceOwnership(metadata.get("owner", ""), metadata.get("shared") == _SHARED),
    )
    return StoredVoice(
        voice, VoiceOrigin(**{field.name: metadata.get(field.name, "") for field in fields(VoiceOrigin)})
    )
