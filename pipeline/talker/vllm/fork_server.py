"""A process that imports vLLM while the gateway still starts, and from which the engine's process is forked.

vLLM takes seconds to import, in the gateway's process and in the engine's. With this the two do so side by side; and an
engine that is started again finds it done.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from pathlib import Path

from .temporary_folder import tmpdir_for_children

_started_with: dict[str, str] | None = None
"""Settings in the environment of the process that runs ahead, which are its children's too."""


def start_fork_server(modules: list[str], settings: Mapping[str, str], folder: Path) -> None:
    """Start the process, which imports `modules`; returns at once. `settings`: of our environment, which it gets.

    `folder`: for its socket, and the temporary one of all that is forked from it. There is one such process in a
    process; a second call changes nothing.
    """
    global _started_with
    if _started_with is not None:
        return
    _started_with = dict(settings)
    multiprocessing.get_context("forkserver").set_forkserver_preload(modules)
    # Its socket's place is otherwise a folder that a `kill -9` would leave behind.
    vars(multiprocessing.current_process())["_config"]["tempdir"] = str(folder)
    with tmpdir_for_children(folder), _interrupts_blocked():
        forkserver.ensure_running()


def multiprocessing_context(settings: Mapping[str, str]) -> BaseContext:
    """What starts an engine's process: the one ahead, where it has these settings, else an interpreter of its own."""
    return multiprocessing.get_context("forkserver" if _started_with == settings else "spawn")


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """For processes started meanwhile, and theirs: Ctrl-C goes to a terminal's whole group, and the gateway ends them.

    One that reached the imports would end them with a traceback.
    """
    # Its start lets interrupts through again.
    resource_tracker.ensure_running()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
