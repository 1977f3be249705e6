"""CUDA graphs: the kernels of a computation recorded once and launched together from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch

Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")

WARM_UP_ROUNDS = 2
"""Calls before a capture: the first one compiles kernels, and libraries allocate their workspace."""


class CapturedGraph(Generic[Inputs, Outputs]):
    """A captured computation. A replay reads the tensors in `inputs` and overwrites those in `outputs`.

    It keeps what it was captured from, because a replay also reads the tensors that `run` holds.
    """

    def __init__(
        self, graph: torch.cuda.CUDAGraph, run: Callable[[Inputs], Outputs], inputs: Inputs, outputs: Outputs
    ) -> None:
        self._graph, self._run = graph, run
        self.inputs = inputs
        self.outputs = outputs

    @classmethod
    def capture(
        cls,
        run: Callable[[Inputs], Outputs],
        inputs: Inputs,
        *,
        stream: torch.cuda.Stream | None = None,
        pool: Any = None,
    ) -> CapturedGraph[Inputs, Outputs]:
        """Record what `run(inputs)` launches. `run` is called several times and must not wait for the device.

        `stream`: its priority becomes that of the graph's kernels. `pool`: from `new_memory_pool`, to share memory with
        graphs that never run at the same time.
        """
        stream = stream or new_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_ROUNDS):
                run(inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # "thread_local": other threads may use the device during the capture.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            outputs = run(inputs)
        return cls(graph, run, inputs, outputs)

    def replay(self) -> Outputs:
        """Launch the kernels on the current stream; returns `outputs`, which the next replay overwrites."""
        self._graph.replay()
        return self.outputs


class GraphBuckets(Generic[Inputs, Outputs]):
    """Graphs of one computation for several batch sizes; a batch runs in the smallest that it fits in."""

    def __init__(self, graphs: Mapping[int, CapturedGraph[Inputs, Outputs]]) -> None:
        """`graphs`: by number of rows; at least one."""
        self._graphs = dict(sorted(graphs.items()))
        self._sizes = tuple(self._graphs)

    @classmethod
    def capture(
        cls,
        run: Callable[[Inputs], Outputs],
        inputs: Callable[[int], Inputs],
        sizes: Sequence[int],
        *,
        stream: torch.cuda.Stream | None = None,
        pool: Any = None,
    ) -> GraphBuckets[Inputs, Outputs]:
        """Capture `run(inputs(size))` for every size, the largest first so that the others fit in its memory."""
        return cls(
            {
                size: CapturedGraph.capture(run, inputs(size), stream=stream, pool=pool)
                for size in sorted(sizes, reverse=True)
            }
        )

    @property
    def max_rows(self) -> int:
        return self._sizes[-1]

    def smallest(self, rows: int) -> tuple[int, CapturedGraph[Inputs, Outputs]]:
        """The smallest size of at least `rows`, and its graph. Raises ValueError when there is none."""
        for size in self._sizes:
            if size >= rows:
                return size, self._graphs[size]
        raise ValueError(f"a batch must have at most {self.max_rows} rows, got {rows}")


def new_memory_pool() -> Any:
    """A memory pool for graphs that never run at the same time."""
    return torch.cuda.graph_pool_handle()


def new_stream(priority: int = 0) -> torch.cuda.Stream:
    """A new stream; kernels of streams with a lower number are scheduled first."""
    return torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]  # torch has no types for it


def new_event(*, timing: bool = False, spin: bool = False) -> torch.cuda.Event:
    """An event whose waiting threads sleep; `timing`: records its time, for `elapsed_time`.

    `spin`: they spin instead, and go on some 0.1 ms earlier.
    """
    return torch.cuda.Event(enable_timing=timing, blocking=not spin)  # type: ignore[no-untyped-call]  # as above
