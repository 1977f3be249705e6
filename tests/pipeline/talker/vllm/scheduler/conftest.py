"""A harness for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .scheduler_harness import SchedulerHarness


@pytest.fixture
def harness() -> Iterator[SchedulerHarness]:
    harness = SchedulerHarness()
    yield harness
    harness.close()
