"""When the scheduler orders the next step while one is under way (just-in-time scheduling).

A step is ordered as late as its preparation allows, so that utterances and credit that arrive before the order are in
it, and the process's other threads run meanwhile. This file does not import vLLM: the rule is also simulated without.
"""

from __future__ import annotations

import bisect

from ...step_times import StepTimer
from ..cuda.graph_sizes import GRAPH_SIZES

MARGIN_S = 0.0006
"""The wait ends this long before preparation has to begin, because an idle device delays every utterance."""
MAX_WAIT_S = 0.02
MIN_SAMPLES = 4
"""Finished steps of a shape before the scheduler waits for one of that shape."""

StepShape = tuple[int, int]
"""Indices in GRAPH_SIZES of the graphs that hold a step's rows and its positions."""


def step_shape(rows: int, positions: int) -> StepShape:
    """Returns the shape of a step of `rows` requests and `positions` positions, of prompts and frames together."""
    return bisect.bisect_left(GRAPH_SIZES, rows), bisect.bisect_left(GRAPH_SIZES, positions)


def order_wait_s(timer: StepTimer[StepShape], now_s: float) -> float:
    """Returns how long the next order can wait; 0 unless exactly one step is in flight and its end can be expected."""
    if timer.in_flight != 1 or (end_s := timer.expected_end_s()) is None:
        return 0.0
    return min(max(0.0, end_s - timer.preparation_s() - MARGIN_S - now_s), MAX_WAIT_S)
