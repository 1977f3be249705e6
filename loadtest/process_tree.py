"""Memory and CPU time of a process and all its descendants."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """`memory_mb` is the proportional set size: pages shared between the processes count once."""

    processes: int
    memory_mb: float
    cpu_s: float


def tree_usage(pid: int) -> TreeUsage:
    """The present usage of the process tree under `pid`, without processes that end meanwhile."""
    processes, memory = 0, 0
    for process in _tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            memory += process.memory_full_info().pss
            processes += 1
    return TreeUsage(processes, memory / 2**20, tree_cpu_s(pid))


def tree_cpu_s(pid: int) -> float:
    """The CPU time alone. Measuring the memory of a large process stops it for a moment; this does not."""
    cpu_s = 0.0
    for process in _tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu_s += times.user + times.system
    return cpu_s


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []
