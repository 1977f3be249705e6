"""Which generations step: those with audio to spare together, the others at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from voxgate.pipeline.talker.vllm.scheduler.joint_steps import (
    FEW_ROWS,
    HOLD_ROWS,
    HOLD_S,
    JOINT_INTERVAL_S,
    SMALL_STEP,
    SPARE_FRAMES,
    JointSteps,
    Ready,
)


def chosen(
    steps: JointSteps, now_s: float, *ahead: int, begins: bool = False, expected_s: float = -math.inf
) -> list[int]:
    paced = np.ones(len(ahead), np.bool_)
    return steps.choose(np.array(ahead, np.int64), paced, now_s, begins=begins, expected_s=expected_s).tolist()


@pytest.fixture
def steps() -> JointSteps:
    """Behind a joint step at 0 s."""
    steps = JointSteps()
    assert chosen(steps, 0.0, 9) == [0]
    return steps


@pytest.mark.parametrize(
    ("ready", "urgent", "wait_s"),
    [(0, 0, math.inf), (5, 0, JOINT_INTERVAL_S - 0.005), (5, 1, 0.0), (SMALL_STEP, 0, 0.0)],
    ids=["none ready", "all with audio to spare", "one without", "enough for a step"],
)
def test_moment_of_the_next_step(steps: JointSteps, ready: int, urgent: int, wait_s: float) -> None:
    assert steps.wait_s(Ready(ready, urgent), 0.005) == pytest.approx(wait_s)
    assert steps.wait_s(Ready(ready, urgent), 1.0) == (0.0 if ready else math.inf)


def test_generations_are_counted_by_what_they_have_ahead() -> None:
    ahead = np.array([-1, 0, 1, SPARE_FRAMES - 1, SPARE_FRAMES, SPARE_FRAMES])
    paced = np.array([True, True, True, True, True, False])
    assert Ready.of(ahead, paced) == Ready(6, 5, 3)
    assert Ready(1, 2, 3) + Ready(10, 20, 30) == Ready(11, 22, 33)


@pytest.mark.parametrize(
    ("ready", "wait_s"),
    [
        (Ready(5, 2, 0), HOLD_S - 0.001),
        (Ready(5, 2, 1), 0.0),
        (Ready(HOLD_ROWS, 0, 0), HOLD_S - 0.001),
        (Ready(HOLD_ROWS + 1, 0, 0), 0.0),
        (Ready(), math.inf),
    ],
    ids=["all have a frame ahead", "one has not", "many", "too many", "none"],
)
def test_step_waits_for_an_utterance_that_is_about_to_begin(steps: JointSteps, ready: Ready, wait_s: float) -> None:
    assert steps.wait_s(ready, 1.001, 1.0) == pytest.approx(wait_s)
    assert steps.wait_s(ready, 1.0 + HOLD_S, 1.0) == (0.0 if ready.all else math.inf)


def test_step_does_not_wait_for_it_longer_than_for_the_others(steps: JointSteps) -> None:
    assert steps.wait_s(Ready(5), JOINT_INTERVAL_S - 0.001, JOINT_INTERVAL_S - 0.001) == pytest.approx(0.001)
    assert steps.wait_s(Ready(5), JOINT_INTERVAL_S, JOINT_INTERVAL_S - 0.001) == pytest.approx(HOLD_S - 0.001)


def test_step_waits_once_however_many_utterances_are_about_to_begin(steps: JointSteps) -> None:
    for waited_s in (0.0, HOLD_S / 2, HOLD_S - 0.001):
        assert steps.wait_s(Ready(5, 1), 1 + waited_s, 1 + waited_s) == pytest.approx(HOLD_S - waited_s)
        assert chosen(steps, 1 + waited_s, 1, expected_s=1 + waited_s) == []
    now_s = 1 + HOLD_S
    assert steps.wait_s(Ready(5, 1), now_s, now_s) == 0.0
    assert chosen(steps, now_s, 1, expected_s=now_s) == [0]
    assert steps.wait_s(Ready(5, 1), now_s + 0.001, now_s) == pytest.approx(HOLD_S - 0.001)


def test_step_waits_as_long_where_another_has_ended_without_being_scheduled(steps: JointSteps) -> None:
    assert steps.wait_s(Ready(1, 1), 1.0, 1.0) == pytest.approx(HOLD_S)
    assert steps.wait_s(Ready(1, 1), 1.1, 1.1) == pytest.approx(HOLD_S)


@pytest.mark.parametrize("expected_s", [1.001, math.inf, math.nan, -math.inf, 0.0])
def test_times_to_come_and_past_count_for_nothing(steps: JointSteps, expected_s: float) -> None:
    assert steps.wait_s(Ready(1, 1), 1.0, expected_s) == 0.0


def test_step_that_begins_an_utterance_does_not_wait_for_another(steps: JointSteps) -> None:
    assert chosen(steps, 1.0, -1, 9, expected_s=1.0) == [0, 1]
    assert chosen(steps, 1.0, 9, begins=True, expected_s=1.0) == [0]


def test_those_with_audio_to_spare_step_every_interval(steps: JointSteps) -> None:
    assert chosen(steps, JOINT_INTERVAL_S / 2, SPARE_FRAMES, 9) == []
    assert chosen(steps, JOINT_INTERVAL_S, SPARE_FRAMES, 9) == [0, 1]
    assert chosen(steps, JOINT_INTERVAL_S, SPARE_FRAMES, 9) == []


@pytest.mark.parametrize("other", [SPARE_FRAMES - 1, -1], ids=["short of audio", "begins"])
def test_those_with_audio_to_spare_step_with_one_that_cannot_wait(steps: JointSteps, other: int) -> None:
    assert chosen(steps, 0.001, 9, other, 20) == [0, 1, 2]
    assert steps.wait_s(Ready(2), 0.002) == pytest.approx(JOINT_INTERVAL_S - 0.001)


def test_unpaced_generations_do_not_wait(steps: JointSteps) -> None:
    assert steps.choose(np.array([99]), np.zeros(1, np.bool_), 0.001).tolist() == [0]


def test_step_that_begins_an_utterance_is_small(steps: JointSteps) -> None:
    ahead = [-1, *range(SPARE_FRAMES + 20, SPARE_FRAMES, -1)]
    assert chosen(steps, 0.001, *ahead) == [0, *range(20, 20 - SMALL_STEP + 1, -1)], (
        "those with the least audio fill it"
    )


def test_those_short_of_audio_take_part_in_a_small_step(steps: JointSteps) -> None:
    ahead = [-1, *[SPARE_FRAMES - 1] * (2 * SMALL_STEP), 9]
    assert chosen(steps, 0.001, *ahead) == list(range(2 * SMALL_STEP + 1))


def test_those_with_audio_to_spare_step_with_an_utterance_that_begins_elsewhere(steps: JointSteps) -> None:
    assert chosen(steps, 0.001, 9, 20, begins=True) == [0, 1]


@pytest.mark.parametrize("begins", [False, True])
def test_all_step_behind_a_small_step(steps: JointSteps, begins: bool) -> None:
    ahead = [9] * 40 if begins else [-1, *[9] * 40]
    assert len(chosen(steps, 0.001, *ahead, begins=begins)) == SMALL_STEP
    assert len(chosen(steps, 0.002, *ahead, begins=begins)) == len(ahead)
    assert len(chosen(steps, 0.003, *ahead, begins=begins)) == SMALL_STEP


@pytest.mark.parametrize("begins", [False, True])
def test_every_step_of_few_is_small(begins: bool) -> None:
    steps, ahead = JointSteps(FEW_ROWS), [*range(FEW_ROWS + SPARE_FRAMES, SPARE_FRAMES, -1)]
    for now_s in (1.0, 1.001):
        taken = chosen(steps, now_s, *ahead, begins=begins)
        assert sorted(taken) == [*range(FEW_ROWS - SMALL_STEP, FEW_ROWS)], "those with the least audio"
    assert chosen(steps, 1.002, *ahead[-9:]) == [], "few wait for others"
    assert len(chosen(steps, 1.003, 9, *ahead)) == FEW_ROWS + 1


def test_few_beside_many_that_cannot_wait_step_with_them() -> None:
    """Unpaced ones may step at any time: in small steps they would leave the others no place."""
    steps, paced = JointSteps(FEW_ROWS), np.arange(30) >= SMALL_STEP // 2 + 1
    for now_s in (1.0, 1.001):
        assert len(steps.choose(np.full(30, 9), paced, now_s)) == 30
    paced[0] = True
    assert len(steps.choose(np.full(30, 9), paced, 1.002)) == SMALL_STEP


def test_steps_that_begin_none_are_not_small(steps: JointSteps) -> None:
    assert len(chosen(steps, 0.001, *[9] * 40)) == 40
