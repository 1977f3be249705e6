"""Batch sizes for which CUDA graphs are captured. Free of torch: the gateway's process imports it."""

from __future__ import annotations

GRAPH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 576, 640, 768, 896, 1024, 1280, 1536)
"""Rows of a batch. Those of the layers are positions: 576 are for 512 utterances and some prompts."""

MIN_GRAPH_ROWS, ROWS_OF_A_SLOT = (128, 512), 4
"""Rows up to which the backbone of this package has a graph: `ROWS_OF_A_SLOT` for each slot, within these bounds, and
at least one for each slot. Every graph takes memory, of which a GPU with few slots has little."""


def graph_sizes_for(rows: int) -> list[int]:
    """Sizes for batches of at most `rows` rows, ascending; a batch runs in the smallest that it fits in."""
    return [size for size in GRAPH_SIZES if size < rows] + [rows]


def backbone_graph_sizes(slots: int, *, voxgate_kernels: bool) -> list[int]:
    """Sizes of the backbone's graphs. Its rows are positions, so a batch may hold prompts as well as single positions.

    `voxgate_kernels`: for the backbone of this package, whose graphs take any mixture of rows; those of vLLM's backbone
    take single positions only.
    """
    least, most = MIN_GRAPH_ROWS
    return graph_sizes_for(max(slots, min(most, max(least, ROWS_OF_A_SLOT * slots))) if voxgate_kernels else slots)
