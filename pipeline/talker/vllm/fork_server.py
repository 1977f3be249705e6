"""A fork server that imports vLLM while the gateway still starts; the engine's process is forked from it.

vLLM takes seconds to import, in the gateway's process and in the engine's. With the fork server both import at the
same time, and an engine that is restarted imports nothing.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from pathlib import Path

from ...ipc.temporary_folder import tmpdir_for_children

_started_with: dict[str, str] | None = None
"""Environment settings of the fork server, which its children inherit."""


def start_fork_server(modules: list[str], settings: Mapping[str, str], folder: Path) -> None:
    """Starts the fork server, which imports `modules`; returns at once.

    `settings`: part of the present environment. `folder`: for its socket, and TMPDIR of its children. A process has
    one fork server; a second call does nothing.
    """
    global _started_with
    if _started_with is not None:
        return
    _started_with = dict(settings)
    multiprocessing.get_context("forkserver").set_forkserver_preload(modules)
    # By default its socket is in a folder that SIGKILL leaves behind. Python has no public name for this setting.
    vars(multiprocessing.current_process())["_config"]["tempdir"] = str(folder)
    with tmpdir_for_children(folder), _interrupts_blocked():
        forkserver.ensure_running()


def multiprocessing_context(settings: Mapping[str, str]) -> BaseContext:
    """How to start an engine's process: forked, if the fork server has these settings, otherwise spawned."""
    return multiprocessing.get_context("forkserver" if _started_with == settings else "spawn")


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT and SIGHUP in processes started meanwhile and in their children.

    Ctrl-C and a hangup reach a terminal's whole process group; during the imports Ctrl-C would end the fork server with
    a traceback. The gateway ends these processes itself.
    """
    # The start of the resource tracker would unblock the signal.
    resource_tracker.ensure_running()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
