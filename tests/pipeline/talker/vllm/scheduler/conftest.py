"""A bench for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .plain_scheduler import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()
