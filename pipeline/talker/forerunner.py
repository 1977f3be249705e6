"""A process that imports vLLM while the gateway still starts, and from which the engine's process is forked.

vLLM takes seconds to import, in the gateway's process and in the engine's. With this the two do so side by side; and an
engine that is started again finds it done.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path

from .scratch import temporary_folder

_started_with: dict[str, str] | None = None
"""Settings in the environment of the process that runs ahead, which are its children's too."""


def run_ahead(modules: list[str], settings: Mapping[str, str], folder: Path) -> None:
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
    with temporary_folder(folder):
        forkserver.ensure_running()


def engine_context(settings: Mapping[str, str]) -> BaseContext:
    """What starts an engine's process: the one ahead, where it has these settings, else an interpreter of its own."""
    return multiprocessing.get_context("forkserver" if _started_with == settings else "spawn")
