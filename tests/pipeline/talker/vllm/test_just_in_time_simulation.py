"""Simulation of a GPU's steps and of utterances that arrive between them: latency of first frames.

Times of an engine on one H200, 1.7B (`docs/benchmarks.md`): a step on the device, its preparation on the host. Prompts
are computed ahead.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.credit import GPU_GROUPS, INTERVAL_S
from voxgate.pipeline.step_times import MIN_SAMPLES, StepShape, StepTimer, order_wait_s, step_shape
from voxgate.pipeline.talker.vllm.scheduler.joint_steps import FEW_ROWS, SMALL_STEP, JointSteps, Ready

FRAMES = 63
FIRST, AHEAD = 8, 25
LEAD_S = 0.0022
"""Time from the `start` message of an utterance to its request."""
SOON = 8
"""Utterances that are looked at for one that is about to begin."""
SEEDS = (1, 2, 3)
SMALL_STEP_S = 0.00265
"""Time of a step of up to `SMALL_STEP` rows on the device, which has kernels of its own."""
STEP_ROWS, STEP_S = (32, 64, 128, 256), (0.0039, 0.0043, 0.0049, 0.0065)
"""Rows of larger steps, and their times."""


@dataclass
class Speech:
    arrived_s: float
    offset_s: float
    made: int = 0
    first_s: float = math.inf

    def heard(self, now_s: float) -> int:
        """Frames heard at the last round."""
        round_s = (now_s - self.offset_s) // INTERVAL_S * INTERVAL_S + self.offset_s
        return max(0, int(1000 * (round_s - self.first_s) / FRAME_MS))

    def ahead(self, now_s: float) -> float:
        """Frames that are made and not played; those of the step under way count as made."""
        return self.made - max(0.0, 1000 * (now_s - self.first_s) / FRAME_MS)

    def may_step(self, now_s: float) -> bool:
        """Its credit is what was heard at the last round, and as much again; one frame until that was made."""
        if self.first_s == math.inf:
            return not self.made
        heard = self.heard(now_s)
        return self.made < min(FRAMES, heard + min(AHEAD, FIRST + heard))


@dataclass
class Device:
    """`firsts_s`: latency of each first frame; `idle_s`: time without work while generations could step."""

    firsts_s: list[float]
    steps: int = 0
    idle_s: float = 0.0
    fewest_ahead: float = math.inf
    """Least audio of an utterance at the schedule of one of its steps, in frames."""

    @property
    def p95_ms(self) -> float:
        return 1000 * sorted(self.firsts_s)[int(0.95 * len(self.firsts_s))]


def few_small() -> JointSteps:
    """As served on Hopper."""
    return JointSteps(FEW_ROWS)


class NoSmallStep(JointSteps):
    """Steps that begin an utterance are as large as others."""

    def choose(self, *args: Any, **kwargs: Any) -> NDArray[np.int64]:
        self._was_small = True
        return super().choose(*args, **kwargs)


class AllStep(JointSteps):
    """Every generation steps as soon as it may."""

    def wait_s(self, ready: Ready, *_: Any) -> float:
        return 0.0 if ready.all else math.inf

    def choose(self, ahead: NDArray[np.int64], *_: Any, **__: Any) -> NDArray[np.int64]:
        return np.arange(len(ahead))


class NoHold(JointSteps):
    """No step waits for an utterance that is about to begin."""

    def hold_s(self, *_: Any) -> float:
        return 0.0


def simulate(
    rate_per_s: float,
    seconds: float = 20.0,
    *,
    just_in_time: bool = True,
    groups: int = GPU_GROUPS,
    steps: Callable[[], JointSteps] = few_small,
    seed: int = 1,
) -> Device:
    """vLLM's loop: schedules a step while another runs, then waits for the older one."""
    chance, device, joint_steps = random.Random(seed), Device([]), steps()
    timer: StepTimer[StepShape] = StepTimer(MIN_SAMPLES)
    arrivals, due_s = [], 0.0
    while due_s < seconds:
        arrivals.append(due_s := due_s + chance.expovariate(rate_per_s))
    expected = [due_s - LEAD_S for due_s in arrivals]
    speeches: list[Speech] = []
    flying: list[tuple[float, list[Speech]]] = []
    now_s = free_s = 0.0
    while now_s < seconds:
        if just_in_time and (wait_s := order_wait_s(timer, now_s)):
            now_s += wait_s + 0.0005 * chance.random()
        while arrivals[0] <= now_s:
            expected.pop(0)
            speeches.append(Speech(arrivals.pop(0), INTERVAL_S / groups * chance.randrange(groups)))
        ready = [speech for speech in speeches if speech.may_step(now_s)]
        ahead = np.array([speech.made - speech.heard(now_s) if speech.made else -1 for speech in ready], np.int64)
        paced = np.ones(len(ready), np.bool_)
        expected_s = max((since_s for since_s in expected[:SOON] if since_s <= now_s), default=-math.inf)
        if not (wait_s := joint_steps.wait_s(Ready.of(ahead, paced), now_s, expected_s)):
            ready = [ready[at] for at in joint_steps.choose(ahead, paced, now_s, expected_s=expected_s)]
            device.fewest_ahead = min([device.fewest_ahead, *(speech.ahead(now_s) for speech in ready if speech.made)])
            timer.ordered(ready, now_s, step_shape(len(ready), len(ready)))
            now_s += (0.001 + 1e-5 * len(ready)) * chance.lognormvariate(0, 0.1)
            timer.launched(now_s)
            device.idle_s += max(0.0, now_s - free_s) if flying else 0.0
            free_s = max(now_s, free_s) + step_s(len(ready)) * chance.lognormvariate(0, 0.04)
            for speech in ready:
                speech.made += 1
            flying.append((free_s, ready))
            device.steps += 1
            if len(flying) < 2:
                continue
        elif not flying:
            now_s = min(arrivals[0], now_s + min(0.0003, wait_s))
            continue
        elif just_in_time and len(flying) == 1 and now_s < arrivals[0] < flying[0][0]:
            now_s = arrivals[0]
            continue
        over_s, made = flying.pop(0)
        now_s = max(now_s, over_s) + 0.0003
        timer.finished(made, now_s)
        for speech in made:
            if speech.first_s > over_s:
                speech.first_s = over_s
                device.firsts_s.append(over_s - speech.arrived_s)
        speeches = [speech for speech in speeches if speech.made < FRAMES]
    return device


def step_s(rows: int) -> float:
    """Time of a step on the device."""
    return SMALL_STEP_S if rows <= SMALL_STEP else float(np.interp(rows, STEP_ROWS, STEP_S))


def test_just_in_time_scheduling_shortens_first_frame_latency() -> None:
    for rate_per_s in (10, 60):
        early, late = (simulate(rate_per_s, just_in_time=late) for late in (False, True))
        assert late.p95_ms < early.p95_ms - 0.4
        # The device idles hardly longer.
        assert late.idle_s < early.idle_s + 0.02 * 20


def test_staggered_credit_shortens_first_frame_latency() -> None:
    together, in_turn = (simulate(60, groups=groups) for groups in (1, GPU_GROUPS))
    assert in_turn.p95_ms < 0.95 * together.p95_ms


def test_joint_steps_shorten_first_frame_latency() -> None:
    each, joint = ([simulate(20, 30, steps=steps, seed=seed) for seed in SEEDS] for steps in (AllStep, few_small))
    assert mean_p95_ms(joint) < mean_p95_ms(each) - 0.1
    for one, other in zip(joint, each, strict=True):
        assert one.steps < 0.7 * other.steps
        # No utterance is closer to an underrun for it.
        assert one.fewest_ahead > other.fewest_ahead - 0.1


@pytest.mark.parametrize("rate_per_s", [5, 20, 60])
def test_steps_that_wait_for_an_utterance_about_to_begin_shorten_first_frame_latency(rate_per_s: float) -> None:
    at_once, held = (
        [simulate(rate_per_s, 200 / rate_per_s, steps=steps, seed=seed) for seed in SEEDS]
        for steps in (lambda: NoHold(FEW_ROWS), few_small)
    )
    assert mean_p95_ms(held) < mean_p95_ms(at_once) - 0.5
    for one, other in zip(held, at_once, strict=True):
        assert one.fewest_ahead > other.fewest_ahead - 0.1


def test_small_steps_shorten_first_frame_latency() -> None:
    whole, small = (
        [simulate(100, 10, steps=steps, seed=seed) for seed in SEEDS] for steps in (NoSmallStep, JointSteps)
    )
    assert mean_p95_ms(small) < mean_p95_ms(whole) - 0.4
    assert all(one.steps < 1.05 * other.steps for one, other in zip(small, whole, strict=True))


def test_small_steps_of_few_shorten_first_frame_latency() -> None:
    whole, small = ([simulate(20, 10, steps=steps, seed=seed) for seed in SEEDS] for steps in (JointSteps, few_small))
    assert mean_p95_ms(small) < mean_p95_ms(whole) - 0.3
    for one, other in zip(small, whole, strict=True):
        assert one.steps < 1.2 * other.steps
        assert one.fewest_ahead > other.fewest_ahead - 0.1


def mean_p95_ms(devices: Sequence[Device]) -> float:
    return statistics.mean(device.p95_ms for device in devices)
