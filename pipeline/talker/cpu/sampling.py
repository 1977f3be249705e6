"""Drawing a code from one row's logits, sorted only as far as the draw reaches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .jit import compiled, exp
from .weights import Array


@compiled
def _sift_down(heap: NDArray[np.int64], at: int, end: int) -> None:
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


@compiled
def draw(
    logits: Array,
    inverse_temperature: np.float32,
    limit: int,
    top_p: np.float32,
    noise: np.float32,
    order: NDArray[np.int64],
    mass: NDArray[np.float64],
) -> int:
    """As `Candidates.draw`, for one row; of equal logits the lower id comes first."""
    size = len(logits)
    if noise == 0:
        limit = 1
    for i in range(size):
        # Bits of floats, once the negative ones are turned round, are in the order of the numbers.
        bits = np.int64(np.float32(logits[i]).view(np.int32))
        bits ^= (bits >> 31) & 0x7FFFFFFF
        order[i] = bits << 32 | (size - 1 - i)
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(order, i, size)
    best = logits[size - 1 - (order[0] & 0xFFFFFFFF)]
    total: float = 0.0
    enough: float = np.inf
    if limit == size:
        # The mass of all is known without their order, which is then needed only as far as the draw reaches.
        for i in range(size):
            total += float(exp((logits[i] - best) * inverse_temperature))
        enough = total * float(top_p if top_p < 1 else noise)
    taken, reached = 0, 0.0
    while taken < limit and not reached > enough:
        # Candidates gather at the far end of the heap, the best one last.
        end = size - 1 - taken
        top, order[0] = order[0], order[end]
        order[end] = top
        _sift_down(order, 0, end)
        candidate = logits[size - 1 - (top & 0xFFFFFFFF)]
        reached += float(exp((candidate - best) * inverse_temperature))
        mass[taken] = reached
        taken += 1
    if limit < size:
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
