"""A GPU's steps and those who come between them, simulated: how long until somebody's first frame is made.

Times are those of an engine on one H200, 1.7B: a step's on the device, its preparation by the host.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.credit import GPU_GROUPS, INTERVAL_S
from voxgate.pipeline.step_times import StepTimer
from voxgate.pipeline.talker.vllm.step_timing import MIN_SAMPLES, StepShape, order_wait_s, step_shape

FRAMES = 63
FIRST, AHEAD = 8, 25
PROMPT = 12
"""Positions of a prompt."""
SECONDS = 20.0


@dataclass
class Speech:
    came_s: float
    offset_s: float
    made: int = 0
    first_s: float = math.inf

    def may_step(self, now_s: float) -> bool:
        """Its credit is what was heard at the last round, and as much again; one frame until that was made."""
        if self.first_s == math.inf:
            return not self.made
        round_s = (now_s - self.offset_s) // INTERVAL_S * INTERVAL_S + self.offset_s
        heard = max(0, int(1000 * (round_s - self.first_s) / FRAME_MS))
        return self.made < min(FRAMES, heard + min(AHEAD, FIRST + heard))


@dataclass
class Device:
    """`firsts_s`: how long each waited for his first frame; `steps`; `idle_s`: without work while there was some."""

    firsts_s: list[float]
    steps: int = 0
    idle_s: float = 0.0

    @property
    def p95_ms(self) -> float:
        return 1000 * sorted(self.firsts_s)[int(0.95 * len(self.firsts_s))]


def simulate(rate_per_s: float, *, late: bool, groups: int) -> Device:
    """vLLM's loop: order a step while one runs, then wait for the older one's outcome."""
    chance, device = random.Random(1), Device([])
    timer: StepTimer[StepShape] = StepTimer(MIN_SAMPLES)
    arrivals, due_s = [], 0.0
    while due_s < SECONDS:
        arrivals.append(due_s := due_s + chance.expovariate(rate_per_s))
    speeches: list[Speech] = []
    flying: list[tuple[float, list[Speech]]] = []
    now_s = free_s = 0.0
    while now_s < SECONDS:
        if late and (wait_s := order_wait_s(timer, now_s)):
            now_s += wait_s + 0.0005 * chance.random()
        while arrivals[0] <= now_s:
            speeches.append(Speech(arrivals.pop(0), INTERVAL_S / groups * chance.randrange(groups)))
        if ready := [speech for speech in speeches if speech.may_step(now_s)]:
            prompts = sum(not speech.made for speech in ready)
            positions = len(ready) + (PROMPT - 1) * prompts
            timer.ordered(ready, now_s, step_shape(len(ready), positions))
            preparing_s = 0.001 + 1e-5 * len(ready) + 0.0008 * bool(prompts)
            now_s += preparing_s * chance.lognormvariate(0, 0.1)
            timer.launched(now_s)
            device.idle_s += max(0.0, now_s - free_s) if flying else 0.0
            free_s = max(now_s, free_s) + (0.0031 + 3e-5 * positions) * chance.lognormvariate(0, 0.04)
            for speech in ready:
                speech.made += 1
            flying.append((free_s, ready))
            device.steps += 1
            if len(flying) < 2:
                continue
        elif not flying:
            now_s = min(arrivals[0], now_s + 0.001)
            continue
        over_s, made = flying.pop(0)
        now_s = max(now_s, over_s) + 0.0003
        timer.finished(made, now_s)
        for speech in made:
            if speech.first_s > over_s:
                speech.first_s = over_s
                device.firsts_s.append(over_s - speech.came_s)
        speeches = [speech for speech in speeches if speech.made < FRAMES]
    return device


def test_who_comes_waits_less_for_a_step_that_is_ordered_late() -> None:
    for rate_per_s in (10, 60):
        early, late = (simulate(rate_per_s, late=late, groups=GPU_GROUPS) for late in (False, True))
        assert late.p95_ms < early.p95_ms - 0.4
        # The device pays little for it.
        assert late.idle_s < early.idle_s + 0.02 * SECONDS


def test_who_comes_waits_less_where_the_others_take_turns() -> None:
    together, in_turn = (simulate(60, late=True, groups=groups) for groups in (1, GPU_GROUPS))
    assert in_turn.p95_ms < 0.8 * together.p95_ms
