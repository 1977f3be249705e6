"""Figures of a test and their limits, sizes for nightly runs, and the check that the machine is idle."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

QUIET_CHECK_S = 10.0
TIMER_PERIOD_S = 0.01
BUSY_LATENESS_MS = 3.0
"""Above this p99 lateness of a bare timer, figures of time say more about the machine than about the gateway."""


def nightly(*values: Any, id: str | None = None) -> Any:
    """Parameters of a test that runs at this size in nightly runs only."""
    return pytest.param(*values, id=id, marks=pytest.mark.nightly)


class Figures:
    """The figures of one test, shown at the end of the run and kept in build/acceptance.jsonl.

    Limits on counts and memory always hold. Limits on time are checked only with `pytest --timing`, because they depend
    on what else the machine does.
    """

    def __init__(self, record: Callable[[str, object], None], *, judge_time: bool) -> None:
        self.judge_time = judge_time
        self._record = record

    def note(self, name: str, value: float | str) -> None:
        """Record a figure that has no limit."""
        self._record(name, round(value, 3) if isinstance(value, float) else value)

    def at_most(self, name: str, value: float, limit: float) -> None:
        self.note(name, value)
        assert value <= limit, f"{name}: {value:g} is more than {limit:g}"

    def at_least(self, name: str, value: float, limit: float) -> None:
        self.note(name, value)
        assert value >= limit, f"{name}: {value:g} is less than {limit:g}"

    def time_at_most(self, name: str, value: float, limit: float) -> None:
        """As `at_most`, for a figure that depends on the speed of the machine."""
        self.note(name, value)
        assert not self.judge_time or value <= limit, f"{name}: {value:g} is more than {limit:g}"

    def time_at_least(self, name: str, value: float, limit: float) -> None:
        """As `at_least`, for a figure that depends on the speed of the machine."""
        self.note(name, value)
        assert not self.judge_time or value >= limit, f"{name}: {value:g} is less than {limit:g}"


def timer_lateness_p99_ms(seconds: float = QUIET_CHECK_S) -> float:
    """How late a bare timer of 10 ms fires, p99 over `seconds`."""
    late_ms: list[float] = []
    end_s = time.monotonic() + seconds
    while (due_s := time.monotonic() + TIMER_PERIOD_S) < end_s:
        time.sleep(TIMER_PERIOD_S)
        late_ms.append(1000 * (time.monotonic() - due_s))
    return sorted(late_ms)[int(0.99 * len(late_ms))]
