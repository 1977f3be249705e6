"""Fixtures of the acceptance tests: figures, sizes, the seed, and a client without collector pauses."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from .testbed.measuring import BUSY_LATENESS_MS, Figures, timer_lateness_p99_ms


@pytest.fixture(autouse=True)
def no_full_collections() -> Iterator[None]:
    """Keeps the garbage collector from pausing the client: the pause would be taken for one of the gateway."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(700, 10, 100_000)
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.option.seed)


@pytest.fixture
def scaled(request: pytest.FixtureRequest) -> Callable[..., int]:
    """`scaled(count, least=1)`: a size of a nightly test, multiplied by `--scale`."""
    scale = request.config.option.scale
    return lambda count, least=1: max(least, round(count * scale))


@pytest.fixture
def figures(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Figures:
    return Figures(record_property, judge_time=request.config.option.timing)


@pytest.fixture
def quiet_machine(request: pytest.FixtureRequest, figures: Figures) -> None:
    """Skips the test where `--timing` asks for figures of time and the machine is too busy to give any."""
    if request.config.option.timing:
        lateness_ms = timer_lateness_p99_ms()
        figures.note("timer lateness p99 ms", lateness_ms)
        if lateness_ms > BUSY_LATENESS_MS:
            pytest.skip(f"the machine is busy: a 10 ms timer is {lateness_ms:.1f} ms late (p99)")
