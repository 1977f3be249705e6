"""A fork server that imports vLLM while the gateway still starts; the engine's process is forked from it.

vLLM takes seconds to import, in the gateway's process and in the engine's. With the fork server both import at the
same time, and an engine that is restarted imports nothing.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver, popen_forkserver, resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ...gc_freeze import gc_paused
from ...ipc.process_death import GROUP_SIGNALS, exit_with_owner, kill_with_parent
from ...ipc.temporary_folder import tmpdir_for_children

_MODULES = "VOXGATE_FORK_SERVER_MODULES"
"""Environment variable of the fork server: names of the modules that it imports, separated by spaces."""

_started_with: dict[str, str] | None = None
"""Environment settings of the fork server, which its children inherit."""


def start_fork_server(modules: list[str], settings: Mapping[str, str], folder: Path) -> None:
    """Starts the fork server, which imports `modules`; returns at once.

    It calls what has the form "module:function". What fails is ignored: the engine's process imports it again.
    `settings`: part of the present environment. `folder`: for its socket, and TMPDIR of its children. A process has
    one fork server; a second call does nothing. Only in the main thread: the server ends with the thread.
    """
    global _started_with
    if _started_with is not None:
        return
    _started_with = dict(settings)
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
    # By default its socket is in a folder that SIGKILL leaves behind. Python has no public name for this setting.
    vars(multiprocessing.current_process())["_config"]["tempdir"] = str(folder)
    os.environ[_MODULES] = " ".join(modules)
    try:
        with tmpdir_for_children(folder), _signals_blocked():
            forkserver.ensure_running()
    finally:
        del os.environ[_MODULES]


def multiprocessing_context(settings: Mapping[str, str]) -> BaseContext:
    """How to start an engine's process: forked, if the fork server has these settings, otherwise spawned."""
    return _ForkContext() if _started_with == settings else multiprocessing.get_context("spawn")


class _Popen(popen_forkserver.Popen):
    def terminate(self) -> None:
        self.kill()


class _ForkedProcess(ForkServerProcess):
    """A process that vLLM, and Python at its exit, end with SIGKILL instead of SIGTERM, which it blocks.

    It ends with the process that made it, however that ends.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._owner_pid = os.getpid()

    def run(self) -> None:
        exit_with_owner(self._owner_pid)
        super().run()

    @staticmethod
    def _Popen(process: BaseProcess) -> _Popen:  # noqa: N802 - named by multiprocessing
        return _Popen(process)


class _ForkContext(ForkServerContext):
    Process = _ForkedProcess


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks GROUP_SIGNALS in processes started meanwhile and in their children, which vLLM has handle SIGTERM.

    During the imports Ctrl-C would end the fork server with a traceback.
    """
    # The start of the resource tracker would unblock the signals.
    resource_tracker.ensure_running()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _preload(modules: Sequence[str]) -> None:
    """Imports `modules` without collections, which are a quarter of the time that vLLM's imports take.

    Those of forked processes leave out what was imported.
    """
    with gc_paused():
        for name in modules:
            module, _, function = name.partition(":")
            with suppress(Exception):
                imported = import_module(module)
                if function:
                    getattr(imported, function)()
    gc.freeze()


if _MODULES in os.environ:
    # In the fork server, which imports this module instead of those that it was started with. During the imports it
    # would not notice the end of the gateway.
    kill_with_parent()
    _preload(os.environ.pop(_MODULES).split())
