"""Sizes of batches for which a GPU's graphs are captured."""

from __future__ import annotations

GRAPH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536)


def graph_sizes_for(rows: int) -> list[int]:
    """Ascending, for batches of at most `rows`: a step runs in the smallest that it fits in."""
    return [size for size in GRAPH_SIZES if size < rows] + [rows]


MIN_GRAPH_ROWS = 512
"""Rows for which our own layers have a graph however few the slots."""


def backbone_graph_sizes(slots: int, *, own: bool) -> list[int]:
    """Sizes of the backbone's graphs: their rows are positions, and a step can have prompts beside its frames.

    `own`: with our own layers, which take any rows in any graph.
    """
    return graph_sizes_for(max(slots, MIN_GRAPH_ROWS) if own else slots)
