"""Scheduling on a GPU: when the next step is scheduled, and who takes part in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.step_times import MIN_SAMPLES, ORDER_MARGIN_S, step_end_s
from voxgate.pipeline.talker.vllm.scheduler import credit, joint_steps, just_in_time
from voxgate.pipeline.talker.vllm.scheduler.joint_steps import HOLD_S, JOINT_INTERVAL_S, SPARE_FRAMES
from voxgate.pipeline.talker.vllm.scheduler.just_in_time import _END_MARGIN_S, JustInTimeScheduling

from .scheduler_harness import PREFIX, SHAPE, FakeRequest, Order, PlainScheduler, SchedulerHarness, run_generations


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class JustInTimePlainScheduler(JustInTimeScheduling, PlainScheduler):
    pass


@pytest.fixture
def scheduler(harness: SchedulerHarness) -> Iterator[JustInTimePlainScheduler]:
    config = SimpleNamespace(additional_config=harness.config.as_additional_config())
    harness.scheduler = scheduler = JustInTimePlainScheduler(config)
    yield scheduler
    scheduler._reports.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (credit, just_in_time):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def all_paced_and_none_expected(harness: SchedulerHarness) -> None:
    harness.tables.control[:, Field.PACED] = 1
    harness.tables.expected_s[:] = -math.inf


@pytest.fixture
def under_way(scheduler: JustInTimePlainScheduler, clock: Clock, harness: SchedulerHarness) -> Order:
    """A step of 10 ms that others like it preceded, in which an utterance with audio to spare takes part."""
    run_generations(harness, a=20)

    def launch() -> Order:
        order: Order = scheduler.schedule()
        clock.now_s += 0.001
        scheduler.get_grammar_bitmask(order)
        return order

    for _ in range(MIN_SAMPLES):
        order = launch()
        clock.now_s += 0.010
        scheduler.update_from_output(order, None)
        clock.now_s += JOINT_INTERVAL_S
    return launch()


def test_utterances_with_audio_to_spare_step_together(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock
) -> None:
    run_generations(harness, a=20, b=9)
    assert scheduler.has_requests()
    assert scheduler.schedule() == ["a", "b"]
    assert not scheduler.has_requests()
    assert scheduler.wake_s == JOINT_INTERVAL_S
    clock.now_s = JOINT_INTERVAL_S
    assert scheduler.has_requests()
    assert scheduler.schedule() == ["a", "b"]


def test_no_step_is_scheduled_while_an_utterance_is_about_to_begin(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock
) -> None:
    run_generations(harness, a=2)
    clock.now_s = 0.5
    harness.tables.expected_s[3] = clock.now_s
    assert not scheduler.has_requests()
    assert scheduler.wake_s == 0.5 + HOLD_S
    assert scheduler.schedule() == []
    harness.tables.control[0, Field.HEARD] = 20
    assert scheduler.has_requests()
    assert scheduler.schedule() == ["a"]


def test_step_is_scheduled_where_the_expected_utterance_does_not_begin_in_time(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock
) -> None:
    run_generations(harness, a=2)
    harness.tables.expected_s[3] = 0.5
    clock.now_s = 0.5
    assert not scheduler.has_requests()
    clock.now_s = scheduler.wake_s
    assert scheduler.has_requests()
    assert scheduler.schedule() == ["a"]


@pytest.mark.parametrize(("slot", "begins"), [(3, True), (SHAPE.slots, False)], ids=["utterance", "prefill"])
def test_prompts_computed_ahead_wait_for_an_utterance_that_is_about_to_begin(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock, slot: int, begins: bool
) -> None:
    run_generations(harness, a=20)
    scheduler.schedule()
    scheduler.waiting.append(FakeRequest("other", slot))
    clock.now_s = 0.001
    harness.tables.expected_s[2] = clock.now_s
    assert scheduler.has_requests() == begins
    assert scheduler.wake_s == (math.inf if begins else 0.001 + HOLD_S)
    clock.now_s += HOLD_S
    assert scheduler.has_requests()


@pytest.mark.parametrize("prefill", [False, True])
def test_step_comes_in_time_however_often_an_utterance_is_expected(
    harness: SchedulerHarness,
    scheduler: JustInTimePlainScheduler,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    prefill: bool,
) -> None:
    """Those looked at first may not step; then others may, or a prompt waits."""
    monkeypatch.setattr(credit, "_LIKELY_READY", 1)
    run_generations(harness, **({"held": 2} if prefill else {"ready": 2, "held": 2}))
    harness.hold(0 if prefill else 1)
    if prefill:
        scheduler.waiting.append(FakeRequest("prompt", SHAPE.slots))
    began_s = clock.now_s = 0.5
    while True:
        harness.tables.expected_s[3] = clock.now_s
        if scheduler.has_requests():
            break
        assert clock.now_s < began_s + HOLD_S
        clock.now_s += 0.001
    assert clock.now_s == pytest.approx(began_s + HOLD_S)


def test_prompt_waits_beside_a_preempted_utterance_that_may_not_go_on(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock
) -> None:
    run_generations(harness, a=20)
    scheduler.schedule()
    harness.hold(1)
    scheduler.waiting += [FakeRequest("parked", 1, num_preemptions=1), FakeRequest("prompt", SHAPE.slots)]
    harness.tables.expected_s[2] = clock.now_s = 0.001
    assert not scheduler.has_requests()
    assert scheduler.wake_s == 0.001 + HOLD_S


def test_ended_requests_do_not_count_while_a_step_is_under_way(
    scheduler: JustInTimePlainScheduler, under_way: Order
) -> None:
    scheduler.finished = True
    assert not scheduler.has_requests()
    scheduler.update_from_output(under_way, None)
    assert scheduler.has_requests()


def test_loop_sleeps_until_it_is_woken_while_none_may_step(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler
) -> None:
    run_generations(harness, a=20)
    scheduler.schedule()
    assert not scheduler.has_requests()
    harness.hold(0)
    assert not scheduler.has_requests()
    assert scheduler.wake_s == math.inf


def test_loop_is_not_woken_for_an_utterance_that_has_ended(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler
) -> None:
    run_generations(harness, a=20)
    scheduler.schedule()
    assert not scheduler.has_requests()
    assert scheduler.wake_s == JOINT_INTERVAL_S
    harness.run()
    assert not scheduler.has_requests()
    assert scheduler.wake_s == math.inf


@pytest.mark.parametrize("held", [[0], [1], []])
def test_running_requests_beyond_the_first_looked_at_count(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, monkeypatch: pytest.MonkeyPatch, held: list[int]
) -> None:
    """Two utterances are enough for a step; one that is unpaced is too."""
    monkeypatch.setattr(credit, "_LIKELY_READY", 1)
    monkeypatch.setattr(joint_steps, "SMALL_STEP", 2)
    run_generations(harness, a=20, b=20)
    scheduler.schedule()
    harness.hold(*held)
    harness.tables.control[:, Field.PACED] = not held
    assert scheduler.has_requests()


@pytest.mark.parametrize(("paced", "lead"), [(0, 20), (1, SPARE_FRAMES - 1)], ids=["unpaced", "short of audio"])
def test_others_step_at_once(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, paced: int, lead: int
) -> None:
    run_generations(harness, a=20, b=lead)
    scheduler.schedule()
    harness.tables.control[1, Field.PACED] = paced
    assert scheduler.has_requests()
    assert scheduler.schedule() == ["a", "b"]


def test_step_that_only_ends_requests_has_no_rows(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler
) -> None:
    run_generations(harness, a=20)
    scheduler.update_from_output(scheduler.schedule(), None)
    scheduler.finished = True
    assert scheduler.has_requests()
    assert scheduler.schedule() == []
    assert harness.running() == ["a"]


def test_those_left_out_of_a_small_step_go_on_running(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_steps, "SMALL_STEP", 2)
    *_, new = run_generations(harness, relaxed=20, near=9, nearer=8, new=0)
    new.num_computed_tokens = PREFIX
    assert scheduler.schedule() == ["new", "nearer"]
    assert sorted(harness.running()) == ["near", "nearer", "new", "relaxed"]
    assert sorted(scheduler.schedule()) == ["near", "nearer", "new", "relaxed"]


@pytest.mark.parametrize(
    ("slot", "preemptions", "rows"), [(3, 0, 3), (3, 1, 4), (SHAPE.slots, 0, 4)], ids=["new", "goes on", "prefill"]
)
def test_step_with_a_new_utterance_is_small(
    harness: SchedulerHarness,
    scheduler: JustInTimePlainScheduler,
    monkeypatch: pytest.MonkeyPatch,
    slot: int,
    preemptions: int,
    rows: int,
) -> None:
    monkeypatch.setattr(joint_steps, "SMALL_STEP", 2)
    run_generations(harness, a=20, b=9, c=8)
    scheduler.waiting.append(FakeRequest("other", slot, num_preemptions=preemptions))
    assert len(scheduler.schedule()) == rows


@pytest.mark.usefixtures("under_way")
def test_utterance_that_begins_while_a_step_runs_is_scheduled_behind_it(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock
) -> None:
    waits = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        clock.now_s += 0.0002
        if len(waits) == 2:
            harness.tables.control[0, Field.HEARD] = 99
        return True

    scheduler.wait_for_notification = wait
    assert scheduler.has_requests()
    assert waits == pytest.approx([0.001 + ORDER_MARGIN_S - _END_MARGIN_S - 0.0002 * at for at in range(2)])
    assert scheduler.schedule() == ["a"]


def test_loop_goes_on_at_the_end_of_the_step_under_way(
    scheduler: JustInTimePlainScheduler, clock: Clock, under_way: Order
) -> None:
    launched_s = clock.now_s

    def wait(seconds: float) -> bool:
        clock.now_s += seconds
        return True

    scheduler.wait_for_notification = wait
    assert not scheduler.has_requests()
    assert clock.now_s == pytest.approx(launched_s + 0.010 - _END_MARGIN_S)
    scheduler.update_from_output(under_way, None)
    scheduler.wait_for_notification = lambda _: pytest.fail("no step is under way")
    assert not scheduler.has_requests()


def test_end_of_a_step_is_expected_when_the_device_completes_it(
    harness: SchedulerHarness, scheduler: JustInTimePlainScheduler, clock: Clock, under_way: Order
) -> None:
    order, durations_s = under_way, []
    for _ in range(20):
        # Nothing is ordered behind the step, so that the loop looks for its end when that is expected.
        began_s, expected_s = clock.now_s, step_end_s(scheduler._timer)
        durations_s.append(expected_s - began_s)
        harness.tables.completed[:2] = order.step_number, began_s + 0.010
        clock.now_s = max(began_s + 0.010, expected_s) + 0.001
        scheduler.update_from_output(order, None)
        clock.now_s += JOINT_INTERVAL_S
        order = scheduler.schedule()
        clock.now_s += 0.001
        scheduler.get_grammar_bitmask(order)
    assert max(durations_s) == pytest.approx(0.010)


@pytest.mark.usefixtures("under_way")
def test_loop_goes_on_where_it_has_a_message_to_read(scheduler: JustInTimePlainScheduler) -> None:
    scheduler.wait_for_notification = lambda _: False
    assert not scheduler.has_requests()


@pytest.mark.usefixtures("under_way")
def test_step_that_becomes_due_while_another_runs_is_scheduled_behind_it(
    scheduler: JustInTimePlainScheduler, clock: Clock
) -> None:
    due_s = scheduler._joint_steps._next_s = clock.now_s + 0.009

    def wait(seconds: float) -> bool:
        clock.now_s += seconds
        return True

    scheduler.wait_for_notification = wait
    assert scheduler.has_requests()
    assert clock.now_s == pytest.approx(due_s)


def test_next_step_is_scheduled_late_and_includes_new_request(
    scheduler: JustInTimePlainScheduler, clock: Clock, harness: SchedulerHarness
) -> None:
    """Steps of 10 ms, each prepared in 1 ms."""
    harness.tables.control[:, Field.PACED] = 0
    scheduler.running = [FakeRequest("a", 0)]

    def launch() -> Order:
        order: Order = scheduler.schedule()
        clock.now_s += 0.001
        scheduler.get_grammar_bitmask(order)
        return order

    for _ in range(5):
        order = launch()
        clock.now_s += 0.010
        scheduler.update_from_output(order, None)
    assert not clock.slept
    launch()
    assert scheduler.has_requests()
    scheduler.waiting.append(FakeRequest("new", 3, 0))
    assert clock.slept == [pytest.approx(0.010 - 0.001 - ORDER_MARGIN_S)]
    assert scheduler.has_requests(), "it waits once per step"
    assert len(clock.slept) == 1
    assert launch() == ["a", "new"]
