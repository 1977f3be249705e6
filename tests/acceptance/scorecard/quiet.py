"""The quiet gate: a figure of time means something only on a machine that does nothing else."""

from __future__ import annotations

import time

GATE_S = 10.0
PERIOD_S = 0.01
LATE_MS = 3.0
"""With a p99 lateness above this, the row's result is void."""


def lateness_p99_ms(seconds: float) -> float:
    """How late a bare 10 ms timer fires, p99 over `seconds`."""
    late: list[float] = []
    end_s = time.monotonic() + seconds
    while (due_s := time.monotonic() + PERIOD_S) < end_s:
        time.sleep(PERIOD_S)
        late.append(1000 * (time.monotonic() - due_s))
    return sorted(late)[int(0.99 * len(late))]
