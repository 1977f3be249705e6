"""The folder that voices are kept in: one file a voice, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import BadVoice, TooManyVoices, UnknownVoice, VoiceExists
from .voice_file import MOST_BYTES, SUFFIX, StoredVoice, from_bytes, to_bytes

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_VOICES = 200

log = logging.getLogger(__name__)


def checked_name(name: str) -> str:
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
        name = checked_name(name)
        path = self._path(name)
        try:
            with path.open("rb") as file:
                # One byte more than a voice may have tells a larger file without reading it.
                stored = from_bytes(file.read(MOST_BYTES + 1))
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
        name = checked_name(stored.name)
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
        name = checked_name(name)
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
