"""Which generations step: those with audio to spare together, the others at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from voxgate.pipeline.talker.vllm.scheduler.joint_steps import (
    JOINT_INTERVAL_S,
    JOINT_ROWS,
    SMALL_STEP,
    SPARE_FRAMES,
    JointSteps,
)


def chosen(steps: JointSteps, now_s: float, *ahead: int, begins: bool = False) -> list[int]:
    paced = np.ones(len(ahead), np.bool_)
    return steps.choose(np.array(ahead, np.int64), paced, now_s, begins=begins).tolist()


@pytest.fixture
def steps() -> JointSteps:
    """Behind a joint step at 0 s."""
    steps = JointSteps()
    assert chosen(steps, 0.0, 9) == [0]
    return steps


@pytest.mark.parametrize(
    ("ready", "urgent", "wait_s"),
    [(0, 0, math.inf), (5, 0, JOINT_INTERVAL_S - 0.005), (5, 1, 0.0), (JOINT_ROWS, 0, 0.0)],
    ids=["none ready", "all with audio to spare", "one without", "many"],
)
def test_moment_of_the_next_step(steps: JointSteps, ready: int, urgent: int, wait_s: float) -> None:
    assert steps.wait_s(ready, urgent, 0.005) == pytest.approx(wait_s)
    assert steps.wait_s(ready, urgent, 1.0) == (0.0 if ready else math.inf)


def test_generations_short_of_audio_do_not_delay_joint_steps(steps: JointSteps) -> None:
    for now_s in (0.005, 0.010, 0.015):
        assert chosen(steps, now_s, SPARE_FRAMES - 1) == [0]
    assert not steps.wait_s(1, 0, JOINT_INTERVAL_S)


def test_step_of_one_is_filled_by_those_with_least_audio(steps: JointSteps) -> None:
    ahead = [0, *range(SPARE_FRAMES + 20, SPARE_FRAMES, -1)]
    assert chosen(steps, 0.001, *ahead) == [0, *range(20, 20 - SMALL_STEP + 1, -1)]


def test_many_do_not_wait(steps: JointSteps) -> None:
    assert len(chosen(steps, 0.001, *[9] * JOINT_ROWS)) == JOINT_ROWS
    assert chosen(steps, 0.001, *[9] * (JOINT_ROWS - 1)) == []


@pytest.mark.parametrize("begins", [False, True])
def test_all_step_behind_a_small_step(steps: JointSteps, begins: bool) -> None:
    ahead = [9] * JOINT_ROWS if begins else [-1, *[9] * JOINT_ROWS]
    assert len(chosen(steps, 0.001, *ahead, begins=begins)) == SMALL_STEP
    assert len(chosen(steps, 0.002, *ahead, begins=begins)) == len(ahead)
