"""How many utterances can be spoken at once without a gap, predicted from the steps' measured times.

Every stage has to move every utterance on by a frame (80 ms of sound) within 80 ms. The capacity is the most utterances
for which all stages do, at their slow steps and with a margin. It is learnt while speaking, and before that from a
short calibration.
"""
# TODO-DOC What a machine carries, measured before anybody listens: a few frames spoken by ever more utterances at
# TODO-DOC once.

from __future__ import annotations

import asyncio
import bisect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voxgate.codecs.pcm import FRAME_MS

from .errors import EngineError, RequestError
from .interface import Speech
from .step_times import LatencyCurve, StepTimes

RAISE_BELOW = 0.90
"""One more is let in while the frame deadline would be kept in this share of its time..."""
LOWER_ABOVE = 0.97
"""...and one less when it is not kept in this: between the two nothing changes, so that nothing swings."""
_LOOK_S = 0.5
"""Predictions are made anew at most so often."""
_GROWTH = 8
"""What the figure may grow by at a time: one of so many, and one."""
_WARY_S, _WARY_STEP_S = 60.0, 2.0
"""After a fall it grows for so long by no more than one at a time, with so much time between: what a machine does under
full load shows only there, when its cores begin to take turns."""
_LATE_S, _ON_TIME_S = 1.0, 3.0
"""How long steps must have been over the deadline, and under it again, to be believed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A process that moves utterances on in batches of at most `largest_batch` frames."""

    name: str
    times: StepTimes
    largest_batch: int

    def load(self, curve: LatencyCurve, utterances: int) -> float:
        """The share of a frame's time needed to move all of them on by one; 0 while that is not known."""
        batch = min(utterances, self.largest_batch)
        step_s = curve.at(batch) if utterances else None
        return 0.0 if step_s is None else 1000 * step_s * utterances / batch / FRAME_MS


class Capacity:
    """Synchronous; time comes in as an argument.

    `slots`: the most there can ever be. Before anything was measured that is the figure; it is never less than 1.
    """

    def __init__(self, stages: Sequence[Stage], slots: int) -> None:
        self.stages = tuple(stages)
        self._slots = slots
        self._utterances = slots
        self._looked_s = self._grown_s = self._fell_s = -math.inf
        self._turned_s: float | None = None
        """Since when `late` is not what is observed."""
        self._late = False

    def forget(self) -> None:
        """Begin anew: what was measured was warming up."""
        for stage in self.stages:
            stage.times.reset()

    def settle(self, now_s: float) -> None:
        """Take what was measured so far as this machine's own figures, and the capacity that follows from them."""
        for stage in self.stages:
            stage.times.commit_baseline()
        self._looked_s, self._utterances = now_s, self._most(RAISE_BELOW, self._load_now(now_s))

    def utterances(self, now_s: float) -> int:
        """The most that can be spoken at once."""
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            load = self._load_now(now_s)
            self._follow(self._most(RAISE_BELOW, load), self._most(LOWER_ABOVE, load), now_s)
        return self._utterances

    def _follow(self, low: int, high: int, now_s: float) -> None:
        """Move towards [low, high], within which nothing changes."""
        if high < self._utterances:
            self._utterances, self._fell_s = high, now_s
        elif low > self._utterances:
            wary = now_s - self._fell_s < _WARY_S
            if not wary:
                self._utterances = min(low, self._utterances + 1 + self._utterances // _GROWTH)
            elif now_s - max(self._grown_s, self._fell_s) >= _WARY_STEP_S:
                self._utterances += 1
                self._grown_s = now_s

    def load(self, utterances: int, now_s: float) -> float:
        """The share of the frame's time that the slowest stage needs for so many; 0 when nothing is known."""
        return self._load_now(now_s)(utterances)

    def late(self, utterances: int, now_s: float) -> bool:
        """Whether the steps of those that speak take longer than their sound, and have for a while."""
        over = self.load(utterances, now_s) > 1
        if over == self._late:
            self._turned_s = None
        elif self._turned_s is None:
            self._turned_s = now_s
        elif now_s - self._turned_s >= (_LATE_S if over else _ON_TIME_S):
            self._late, self._turned_s = over, None
        return self._late

    def _load_now(self, now_s: float) -> Callable[[int], float]:
        curves = [(stage, stage.times.curve(now_s)) for stage in self.stages]
        return lambda utterances: max((stage.load(curve, utterances) for stage, curve in curves), default=0.0)

    def _most(self, share: float, load: Callable[[int], float]) -> int:
        """The most utterances whose load, which rises with them, is within `share`: 1 to `slots`."""
        return max(1, bisect.bisect_right(range(1, self._slots + 1), share, key=load))


log = logging.getLogger(__name__)

CALIBRATION_FRAMES = 16
"""Frames that each utterance of a calibration has at most."""
MAX_DOUBLING = 16
"""Beyond so many at once every second doubling is left out: each is as much work as all before it."""
_TEXT = "One, two, three, four, five, six."
_LEAST_S = 1.5
"""A machine that seems to carry little may have had a bad moment: that much time is always taken."""
_LIMIT_S = 60.0
_EVERYTHING_HEARD = 10**6


async def calibrate(capacity: Capacity, slots: int, open_speech: Callable[[], Speech]) -> None:
    """Speak with 1, 2, 4, ..., 16, 64, ... utterances at once, until more than those would not be let in.

    `open_speech` opens one of `CALIBRATION_FRAMES` frames. Talker, codec and this process work at the same time, as they will
    later, so that what they take from each other is measured too. Raises EngineError when the voice cannot speak, or
    says nothing.
    """
    loop = asyncio.get_running_loop()
    began_s, together = loop.time(), 1
    try:
        async with asyncio.timeout(_LIMIT_S):
            # The first of all finds everything cold.
            await _speak(first := open_speech())
            capacity.forget()
            while True:
                await asyncio.gather(*(_speak(open_speech()) for _ in range(together)))
                capacity.settle(loop.time())
                enough = together >= capacity.utterances(loop.time()) and loop.time() - began_s >= _LEAST_S
                if together >= slots or enough:
                    break
                together = min((2 if together < MAX_DOUBLING else 4) * together, slots)
    except RequestError as error:
        log.warning("capacity is learnt only while speaking: %s", error.message)
    except TimeoutError:
        if first.milestones.first_pcm_s is None:
            raise EngineError(f"the voice model made no sound in {_LIMIT_S:g} s") from None
        log.warning("the calibration was cut after %g s", _LIMIT_S)
        capacity.settle(loop.time())
    found = capacity.utterances(loop.time())
    log.info("carries %d utterances at once, found in %.1f s", found, loop.time() - began_s)


async def _speak(speech: Speech) -> None:
    try:
        speech.advance(_EVERYTHING_HEARD)
        speech.push_text(_TEXT)
        speech.end()
        async for _ in speech:
            pass
    finally:
        await speech.aclose()
