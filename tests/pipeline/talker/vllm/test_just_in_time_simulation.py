"""Simulation of a GPU's steps and of utterances that arrive between them: latency of first frames.

Times are those of an engine on one H200, 1.7B: a step's on the device, its preparation by the host.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.credit import GPU_GROUPS, INTERVAL_S
from voxgate.pipeline.step_times import MIN_SAMPLES, StepShape, StepTimer, order_wait_s, step_shape
from voxgate.pipeline.talker.vllm.scheduler.credit import SMALL_STEP, SPARE_FRAMES

FRAMES = 63
FIRST, AHEAD = 8, 25
PROMPT = 12
"""Positions of a prompt."""
SECONDS = 20.0


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

    @property
    def p95_ms(self) -> float:
        return 1000 * sorted(self.firsts_s)[int(0.95 * len(self.firsts_s))]


def small_step(ready: list[Speech], now_s: float) -> list[Speech]:
    """Those of a step that begins an utterance, as `JustInTimeScheduling` chooses them."""
    ahead = {id(speech): speech.made - speech.heard(now_s) if speech.made else -1 for speech in ready}
    urgent = [speech for speech in ready if ahead[id(speech)] < SPARE_FRAMES]
    others = sorted((speech for speech in ready if speech not in urgent), key=lambda speech: ahead[id(speech)])
    return urgent + others[: max(0, SMALL_STEP - len(urgent))]


def simulate(
    rate_per_s: float, *, just_in_time: bool = True, groups: int = GPU_GROUPS, small_steps: bool = True
) -> Device:
    """vLLM's loop: schedules a step while another runs, then waits for the older one."""
    chance, device = random.Random(1), Device([])
    timer: StepTimer[StepShape] = StepTimer(MIN_SAMPLES)
    arrivals, due_s = [], 0.0
    while due_s < SECONDS:
        arrivals.append(due_s := due_s + chance.expovariate(rate_per_s))
    speeches: list[Speech] = []
    flying: list[tuple[float, list[Speech]]] = []
    now_s = free_s = 0.0
    was_small = False
    while now_s < SECONDS:
        if just_in_time and (wait_s := order_wait_s(timer, now_s)):
            now_s += wait_s + 0.0005 * chance.random()
        while arrivals[0] <= now_s:
            speeches.append(Speech(arrivals.pop(0), INTERVAL_S / groups * chance.randrange(groups)))
        if ready := [speech for speech in speeches if speech.may_step(now_s)]:
            begins = any(not speech.made for speech in ready)
            was_small = small_steps and begins and len(ready) > SMALL_STEP and not was_small
            ready = small_step(ready, now_s) if was_small else ready
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
                device.firsts_s.append(over_s - speech.arrived_s)
        speeches = [speech for speech in speeches if speech.made < FRAMES]
    return device


def test_just_in_time_scheduling_shortens_first_frame_latency() -> None:
    for rate_per_s in (10, 60):
        early, late = (simulate(rate_per_s, just_in_time=late) for late in (False, True))
        assert late.p95_ms < early.p95_ms - 0.4
        # The device idles hardly longer.
        assert late.idle_s < early.idle_s + 0.02 * SECONDS


def test_staggered_credit_shortens_first_frame_latency() -> None:
    together, in_turn = (simulate(60, groups=groups) for groups in (1, GPU_GROUPS))
    assert in_turn.p95_ms < 0.8 * together.p95_ms


def test_small_steps_shorten_first_frame_latency() -> None:
    whole, small = (simulate(60, small_steps=small) for small in (False, True))
    assert small.p95_ms < whole.p95_ms - 0.4
    assert small.steps < 1.05 * whole.steps
