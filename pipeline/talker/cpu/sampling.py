"""Draws a code from the logits of one row, sorting only as far as the draw needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.neural.cpu.jit import jit

from .exponential import exp
from .weights import Array


@jit
def _sift_down(heap: NDArray[np.int64], at: int, end: int) -> None:
    """Restore the max-heap `heap[:end]`, of which only the element at `at` may be out of place."""
    value = heap[at]
    child = 2 * at + 1
    while child < end:
        if child + 1 < end and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value


@jit
def draw(
    logits: Array,
    inverse_temperature: np.float32,
    top_k: int,
    top_p: np.float32,
    noise: np.float32,
    order: NDArray[np.int64],
    mass: NDArray[np.float64],
) -> int:
    """As `Candidates.draw` for one row; of equal logits the lower id comes first.

    `order`, `mass`: buffers of the length of `logits`.
    """
    size = len(logits)
    if noise == 0:
        top_k = 1
    for i in range(size):
        # The bits of floats compare like the numbers once those of negative numbers are inverted.
        bits = np.int64(np.float32(logits[i]).view(np.int32))
        bits ^= (bits >> 31) & 0x7FFFFFFF
        order[i] = bits << 32 | (size - 1 - i)
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(order, i, size)
    best = logits[size - 1 - (order[0] & 0xFFFFFFFF)]
    total: float = 0.0
    enough: float = np.inf
    if top_k == size:
        # The total mass does not depend on the order, so sorting can stop where the draw is decided.
        for i in range(size):
            total += float(exp((logits[i] - best) * inverse_temperature))
        enough = total * float(top_p if top_p < 1 else noise)
    taken, reached = 0, 0.0
    while taken < top_k and not reached > enough:
        # Heapsort: the candidates taken are at the end of `order`, the best one last.
        end = size - 1 - taken
        top, order[0] = order[0], order[end]
        order[end] = top
        _sift_down(order, 0, end)
        candidate = logits[size - 1 - (top & 0xFFFFFFFF)]
        reached += float(exp((candidate - best) * inverse_temperature))
        mass[taken] = reached
        taken += 1
    if top_k < size:
        total = reached
    chosen = 0
    if top_p < 1:
        # Candidates stay until the mass before them reaches top_p; the first always stays.
        while chosen < taken - 1 and mass[chosen] < top_p * total:
            chosen += 1
        total, taken, chosen = mass[chosen], chosen + 1, 0
    while chosen < taken - 1 and mass[chosen] <= noise * total:
        chosen += 1
    code: int = size - 1 - (order[size - 1 - chosen] & 0xFFFFFFFF)
    return code
