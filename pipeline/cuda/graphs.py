"""CUDA graphs: a run of many kernels recorded once, and launched as one from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")

WARM_UP_ROUNDS = 2


def capture(
    run: Callable[[], T], stream: torch.cuda.Stream | None = None, pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Record what `run` launches; what it returns is written anew by every replay of the graph.

    `pool`: of a graph that never runs at the same time, to share its memory. `run` is called a few times before, which
    compiles its kernels, and must wait for nothing. The graph's kernels have the priority of `stream`.
    """
    stream = stream or new_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_ROUNDS):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads may go on using the device meanwhile.
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        result = run()
    return graph, result


def new_stream(priority: int = 0) -> torch.cuda.Stream:
    """A stream of its own; the lower the number, the sooner its kernels are served."""
    return torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]  # torch has no types for it


def new_event(*, timing: bool = False) -> torch.cuda.Event:
    """An event to wait for without spinning; `timing`: how long it was between two of them is known."""
    return torch.cuda.Event(enable_timing=timing, blocking=True)  # type: ignore[no-untyped-call]  # as above
