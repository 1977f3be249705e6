"""Whether an engine can be started with the files that this process may still open."""

from __future__ import annotations

import os
from contextlib import ExitStack

from ..errors import EngineError

START_NEEDS = 64
"""Sockets, pipes and polls of vLLM's front, some of which clients are opening at the same time."""


def check_descriptors(needed: int = START_NEEDS) -> None:
    """Raises EngineError where fewer are left: ZeroMQ would end this process, and everybody's sockets with it."""
    with ExitStack() as taken:
        try:
            for _ in range(needed):
                taken.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise EngineError(f"too many files are open to start the talker's engine: {error.strerror}") from error
