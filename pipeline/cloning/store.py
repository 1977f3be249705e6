"""One stored voice as a file: safetensors, so that opening a stranger's file runs nothing of it."""
# TODO-DOC The folder that voices are kept in: one file a voice, written whole or not at all.

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..cloned_voice import ClonedVoice
from ..errors import BadVoice, TooManyVoices, UnknownVoice, VoiceExists

SUFFIX = ".safetensors"
FORMAT = "voxgate-voice-1"
MAX_VOICE_FILE_BYTES = 1 << 20
"""A voice takes some 25 KB; what is far larger is none."""


@dataclass(frozen=True, slots=True)
class VoiceOrigin:
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
    origin: VoiceOrigin = VoiceOrigin()

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
        **{field.name: getattr(stored.origin, field.name) for field in fields(VoiceOrigin)},
    }
    if voice.reference_codes is not None and voice.reference_text is not None:
        tensors["reference_codes"] = voice.reference_codes.astype(np.int16)
        metadata["reference_text"] = voice.reference_text
    file: bytes = save(tensors, metadata)
    return file


def from_bytes(file: bytes) -> StoredVoice:
    """Read a whole file. Raises BadVoice."""
    if len(file) > MAX_VOICE_FILE_BYTES:
        raise BadVoice(f"a voice file has at most {MAX_VOICE_FILE_BYTES} bytes", param="file")
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
    return StoredVoice(
        voice, VoiceOrigin(**{field.name: metadata.get(field.name, "") for field in fields(VoiceOrigin)})
    )


def _metadata(file: bytes) -> dict[str, str]:
    """The library reads the metadata of files only; here the file is in memory and was checked by it already."""
    length = int.from_bytes(file[:8], "little")
    metadata: dict[str, str] = json.loads(file[8 : 8 + length]).get("__metadata__") or {}
    return metadata


NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_VOICES = 200

log = logging.getLogger(__name__)


def validated_name(name: str) -> str:
    """The name in lower case, as voices are called everywhere. Raises BadVoice for what is no safe file name."""
    name = name.lower()
    if not NAME.fullmatch(name):
        message = "a voice's name has up to 64 letters a to z, digits, _ and -, and begins with a letter or digit"
        raise BadVoice(message, param="name")
    return name


class VoiceStore:
    """Voices by name. Other processes may add and remove at the same time; a broken file costs no other voice.

    Methods raise OSError when the disk does, besides what they name.
    """

    def __init__(self, folder: Path, most_voices: int = MOST_VOICES) -> None:
        self.folder = folder
        self._most_voices = most_voices

    def versions(self) -> dict[str, tuple[int, int, int]]:
        """For every name what differs after its file was written anew; files are not read."""
        return {path.stem: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in self._files()}

    def names(self) -> list[str]:
        return [path.stem for path, _ in self._files()]

    def load(self, name: str) -> StoredVoice:
        """Read one voice. Raises UnknownVoice, BadVoice."""
        name = validated_name(name)
        path = self._path(name)
        try:
            with path.open("rb") as file:
                # One byte more than a voice may have tells a larger file without reading it.
                stored = from_bytes(file.read(MAX_VOICE_FILE_BYTES + 1))
        except FileNotFoundError:
            raise UnknownVoice(f"no voice {name!r} in {self.folder}", param="name") from None
        if stored.name != name:
            raise BadVoice(f"{path.name} holds a voice named {stored.name!r}", param="name")
        return stored

    def load_all(self, names: Iterable[str] | None = None) -> dict[str, StoredVoice]:
        """Those of `names`, or of all voices, that can be read; the others are warned of and left where they are."""
        voices = {}
        for name in self.names() if names is None else names:
            try:
                voices[name] = self.load(name)
            except UnknownVoice:
                continue  # removed a moment ago
            except (BadVoice, OSError) as error:
                log.warning("the voice %s is not offered: %s (%s)", name, error, self._path(name))
        return voices

    def add(self, stored: StoredVoice) -> None:
        """Keep a new voice. Raises BadVoice for its name, VoiceExists, TooManyVoices; nothing is left behind then."""
        name = validated_name(stored.name)
        if name != stored.name:
            raise BadVoice("a stored voice's name is in lower case", param="name")
        self.folder.mkdir(parents=True, exist_ok=True)
        if len(self.names()) >= self._most_voices:
            raise TooManyVoices(f"{self._most_voices} voices are kept at most; remove one first")
        handle, draft = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(to_bytes(stored))
                file.flush()
                os.fsync(file.fileno())
            _move_to_free_place(draft, self._path(name))
        except FileExistsError:
            raise VoiceExists(f"there is a voice {name!r} already; remove it first", param="name") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)  # noqa: PTH108 - the draft is known by its name only

    def remove(self, name: str) -> None:
        """Forget a voice, readable or not. Raises UnknownVoice."""
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


def _move_to_free_place(draft: str, path: Path) -> None:
    """Raises FileExistsError. A link never takes the place of a file that came first, as a rename would."""
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # A file system without links: here two at the very same moment could still meet.
        if path.exists():
            raise FileExistsError(path) from None
        Path(draft).rename(path)
