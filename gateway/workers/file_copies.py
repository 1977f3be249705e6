"""Copies of the files that workers read, so that one that starts has what the others have."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ..access.auth import access_from_settings, keys_from_settings
from ..listener import reload_each
from ..session.lookup.pronunciations import Pronunciations
from ..settings import Settings, SettingsError
from ..transport.tls import tls_context

_READERS: Mapping[str, tuple[tuple[str, ...], Callable[[Settings], object]]] = {
    "keys": (("keys_file",), keys_from_settings),
    "certificate": (("tls_certificate", "tls_key"), tls_context),
    "token secret": (("token_secret_file",), access_from_settings),
    "pronunciations": (("pronunciations",), Pronunciations.from_settings),
}
"""By kind: the settings that name its files, and what raises SettingsError when they cannot be used."""
_RELOADED = ("keys", "certificate")


class FileCopies:
    """The files as they were last usable, in anonymous memory; `settings` has the paths of the copies.

    The paths are valid in this process, and in those that inherit `descriptors`.

    Raises SettingsError when a file cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._named = settings
        names = [name for names, _ in _READERS.values() for name in names if getattr(settings, name) is not None]
        self._fds = {name: os.memfd_create(name) for name in names}
        for fd in self._fds.values():
            weakref.finalize(self, os.close, fd)
        self.settings = self._with(self._fds)
        for kind in _READERS:
            self._copy(kind)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(self._fds.values())

    def reload(self) -> tuple[str, ...]:
        """Copies keys and certificate again, and logs those that cannot be used; returns the kinds of the others."""
        kinds = [kind for kind in _RELOADED if not self._fds.keys().isdisjoint(_READERS[kind][0])]
        return reload_each({kind: partial(self._copy, kind) for kind in kinds})

    def _copy(self, kind: str) -> None:
        names, read = _READERS[kind]
        read(self._named)  # its error names the file
        copies = {}
        with ExitStack() as opened:
            for name in self._fds.keys() & set(names):
                copies[name] = os.memfd_create(name)
                opened.callback(os.close, copies[name])
                try:
                    os.write(copies[name], getattr(self._named, name).read_bytes())
                except OSError as error:
                    raise SettingsError(f"{name}: {error}") from None
            read(self._with(copies))  # the file may have changed meanwhile
            for name, fd in copies.items():
                content = os.pread(fd, os.fstat(fd).st_size, 0)
                os.pwrite(self._fds[name], content, 0)
                os.ftruncate(self._fds[name], len(content))

    def _with(self, fds: Mapping[str, int]) -> Settings:
        return self._named.model_copy(update={name: Path(f"/proc/self/fd/{fd}") for name, fd in fds.items()})
