"""Choosing a graph by batch size; capturing needs a GPU and is tested with the code that uses it."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any, cast

import pytest
import torch
from voxgate.pipeline.cuda.graphs import CapturedGraph, GraphBuckets


def buckets(*sizes: int) -> GraphBuckets[int, int]:
    graphs = {size: CapturedGraph(cast(Any, None), abs, size, -size) for size in sizes}
    return GraphBuckets(graphs)


def test_batch_runs_in_the_smallest_graph_that_it_fits_in() -> None:
    graphs = buckets(8, 1, 4)
    assert [graphs.smallest(rows)[0] for rows in (1, 2, 4, 5, 8)] == [1, 4, 4, 8, 8]
    assert graphs.smallest(3)[1].outputs == -4


def test_batch_above_the_largest_graph_raises_value_error() -> None:
    graphs = buckets(1, 4)
    assert graphs.max_rows == 4
    with pytest.raises(ValueError, match="at most 4 rows, got 5"):
        graphs.smallest(5)


class Stream:
    def wait_stream(self, other: Stream) -> None:
        pass


class Reader:
    """A computation that reads something of its own."""

    def __call__(self, _: None) -> None:
        pass


def test_a_graph_keeps_what_its_computation_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: nullcontext())
    reader = Reader()
    kept = weakref.ref(reader)
    graph = CapturedGraph.capture(reader, None, stream=cast(Any, Stream()))
    del reader
    assert kept() is not None
    del graph
    assert kept() is None
