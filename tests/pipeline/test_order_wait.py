"""How long the scheduler can wait with the order of the next step."""

from __future__ import annotations

import itertools

import pytest
from voxgate.pipeline.step_times import (
    MAX_ORDER_WAIT_S,
    MIN_SAMPLES,
    ORDER_MARGIN_S,
    StepShape,
    StepTimer,
    order_wait_s,
    step_shape,
)


class Engine:
    """Orders, launches and finishes steps by number."""

    def __init__(self) -> None:
        self.timer: StepTimer[StepShape] = StepTimer(MIN_SAMPLES)
        self._ordered, self._finished = itertools.count(), itertools.count()

    def order(self, now_s: float, rows: int = 3, positions: int = 3) -> None:
        self.timer.ordered(next(self._ordered), now_s, step_shape(rows, positions))

    def launch(self, now_s: float) -> None:
        self.timer.launched(now_s)

    def finish(self, now_s: float) -> None:
        self.timer.finished(next(self._finished), now_s)

    def wait_s(self, now_s: float) -> float:
        return order_wait_s(self.timer, now_s)

    def run(self, count: int, step_s: float) -> float:
        """Runs `count` steps and leaves one in flight; returns when that one began.

        Each step is ordered 1 ms after the one before it began, and launched 1 ms later.
        """
        self.order(0.0)
        self.launch(0.001)
        began_s = 0.001
        for _ in range(count):
            self.order(began_s + 0.001)
            self.launch(began_s + 0.002)
            began_s += step_s
            self.finish(began_s)
        return began_s


def test_order_waits_until_preparation_has_to_begin() -> None:
    engine = Engine()
    began_s = engine.run(8, 0.005)
    # 5 ms per step, 1 ms to prepare the next.
    assert engine.wait_s(began_s) == pytest.approx(0.004 - ORDER_MARGIN_S)
    assert engine.wait_s(began_s + 0.003) == pytest.approx(0.001 - ORDER_MARGIN_S)
    assert engine.wait_s(began_s + 0.004) == 0


def test_order_does_not_wait_unless_exactly_one_step_is_in_flight() -> None:
    engine = Engine()
    assert engine.wait_s(0.0) == 0
    began_s = engine.run(8, 0.005)
    engine.order(began_s)
    assert engine.wait_s(began_s) == 0
    engine.launch(began_s + 0.001)
    assert engine.wait_s(began_s + 0.001) == 0
    engine.finish(began_s + 0.005)
    engine.finish(began_s + 0.010)
    assert engine.wait_s(began_s + 0.010) == 0


def test_order_does_not_wait_for_a_step_of_unknown_shape() -> None:
    engine = Engine()
    began_s = engine.run(8, 0.005)
    engine.finish(began_s + 0.005)
    engine.order(began_s + 0.005, rows=3, positions=40)
    engine.launch(began_s + 0.006)
    assert engine.wait_s(began_s + 0.006) == 0


def test_one_long_preparation_does_not_shorten_the_wait_and_several_do() -> None:
    engine = Engine()
    began_s = engine.run(8, 0.009)
    engine.finish(began_s + 0.004)
    began_s += 0.004
    engine.order(began_s)
    engine.launch(began_s + 0.003)
    assert engine.wait_s(began_s + 0.003) == pytest.approx(0.004 - 0.001 - ORDER_MARGIN_S)
    for _ in range(4):
        engine.finish(began_s + 0.007)
        began_s += 0.007
        engine.order(began_s)
        engine.launch(began_s + 0.003)
    assert engine.wait_s(began_s + 0.003) == pytest.approx(0.004 - 0.003 - ORDER_MARGIN_S)


def test_order_does_not_wait_before_the_step_under_way_is_launched() -> None:
    engine = Engine()
    began_s = engine.run(8, 0.005)
    engine.finish(began_s + 0.005)
    engine.order(began_s + 0.006)
    assert engine.wait_s(began_s + 0.006) == 0


def test_wait_is_bounded() -> None:
    engine = Engine()
    began_s = engine.run(8, 0.5)
    assert engine.wait_s(began_s) == MAX_ORDER_WAIT_S
