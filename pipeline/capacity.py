"""How many utterances can be spoken at once without a gap, predicted from measured durations of steps.

Every stage has to advance every utterance by a frame (80 ms of audio) within 80 ms. The capacity is the largest number
of utterances for which all stages do, at their slow steps and with a margin. It is first measured by a short
calibration at the start, before any client is served, and then follows the steps that are measured while speaking.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voxgate.codecs.pcm import FRAME_MS

from .errors import EngineError, EngineLost, RequestError
from .interface import Speech
from .step_times import LatencyCurve, StepTimes

log = logging.getLogger(__name__)

RAISE_BELOW = 0.90
"""Utilisation up to which another utterance is admitted."""
LOWER_ABOVE = 0.97
"""Utilisation from which the capacity falls. Between the two it stays, so that it does not oscillate."""
UPDATE_S = 0.5
"""Shortest interval between two predictions: every admission asks several times, and a prediction sorts thousands of
samples. A curve describes the newest 96 steps of a batch size, more than a second of them where the deadline is near,
so one half a second old says nearly the same; and an overload counts only when it has lasted for longer."""
_GROWTH = 8
"""One growth adds at most one utterance and an eighth of the capacity."""
_RECOVERY_S, _RECOVERY_STEP_S, _RECOVERY = 60.0, 2.0, 64
"""For this long after a fall the capacity grows by one utterance and a 64th of itself per step: some effects of full
load, such as cores that share their time, show at full load only."""
STEPS_SLOWER, STEPS_FASTER, RECOVERING = "steps_slower", "steps_faster", "recovering"
"""Causes of a change: steps take longer; they take less time; they do again after a fall, so that it grows slowly."""
_OVERLOADED_S, _RECOVERED_S = 1.0, 3.0
"""How long steps must be over the deadline, and under it again, before the state changes."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A process that advances utterances in batches of at most `largest_batch` frames."""

    name: str
    times: StepTimes
    largest_batch: int

    def utilisation(self, curve: LatencyCurve, utterances: int) -> float:
        """Returns the share of a frame's time needed to advance all utterances by one frame; 0 while unknown."""
        batch = min(utterances, self.largest_batch)
        step_s = curve.at(batch) if utterances else None
        return 0.0 if step_s is None else 1000 * step_s * utterances / batch / FRAME_MS


class Capacity:
    """The number of utterances that `stages` can carry. Synchronous; time is an argument, in seconds.

    It is between 1 and `slots`, the most there can ever be, and `slots` before anything was measured.
    """

    def __init__(self, stages: Sequence[Stage], slots: int) -> None:
        self.stages = tuple(stages)
        self._slots = slots
        self._utterances = slots
        self._curves: Sequence[LatencyCurve] = ()
        """Of each stage, as of `_updated_s`."""
        self._updated_s = self._grown_s = self._fell_s = -math.inf
        self._overloaded = False
        self._contradicted_s: float | None = None
        """Since when the steps contradict `_overloaded`."""
        self.changes: Counter[str] = Counter({STEPS_SLOWER: 0, STEPS_FASTER: 0, RECOVERING: 0})
        """Changes of the number since the calibration, by cause."""
        self.following = True
        """Whether `utterances` follows the steps; not while a calibration makes them, whose few steps of few utterances
        say nothing of many, and whose number is that of `commit_baseline`."""

    def reset(self) -> None:
        """Discards what was measured while warming up."""
        for stage in self.stages:
            stage.times.reset()
        self._updated_s = -math.inf

    def commit_baseline(self, now_s: float) -> None:
        """Takes what was measured so far as this machine's baseline, and the capacity that follows from it."""
        for stage in self.stages:
            stage.times.commit_baseline()
        self._renew_curves(now_s)
        self._utterances = self._largest(RAISE_BELOW)

    def utterances(self, now_s: float) -> int:
        """Returns how many utterances can be spoken at once."""
        self._update(now_s)
        return self._utterances

    def _update(self, now_s: float) -> None:
        """Predicts again from the newest steps, unless it was done less than `UPDATE_S` ago."""
        if now_s - self._updated_s < UPDATE_S:
            return
        self._renew_curves(now_s)
        if not self.following:
            return
        low, high = self._largest(RAISE_BELOW), self._largest(LOWER_ABOVE)
        before, cause = self._utterances, self._adjust(low, high, now_s)
        if cause is not None:
            self._report(cause, before)

    def _renew_curves(self, now_s: float) -> None:
        self._updated_s, self._curves = now_s, [stage.times.curve(now_s) for stage in self.stages]

    def _adjust(self, low: int, high: int, now_s: float) -> str | None:
        """Moves the capacity towards [low, high], within which it stays; returns why, None when it stays as it is."""
        if high < self._utterances:
            self._utterances, self._fell_s = high, now_s
            return STEPS_SLOWER
        if low <= self._utterances:
            return None
        if now_s - self._fell_s >= _RECOVERY_S:
            self._utterances = min(low, self._utterances + 1 + self._utterances // _GROWTH)
            return STEPS_FASTER
        if now_s - max(self._grown_s, self._fell_s) < _RECOVERY_STEP_S:
            return None
        self._utterances = min(low, self._utterances + 1 + self._utterances // _RECOVERY)
        self._grown_s = now_s
        return RECOVERING

    def _report(self, cause: str, before: int) -> None:
        """Counts and logs a change, with what every stage needs, and of a fall with the steps that it follows from."""
        self.changes[cause] += 1
        log.info(
            "capacity: %d utterances at once instead of %d, %s: %s",
            self._utterances,
            before,
            cause.replace("_", " "),
            # What a fall avoids, and what a rise allows.
            self.explain(max(before, self._utterances), steps=cause == STEPS_SLOWER),
        )

    def utilisation(self, utterances: int, now_s: float) -> float:
        """Returns the share of a frame's time that the slowest stage needs for `utterances`; 0 while unknown."""
        self._update(now_s)
        return self._utilisation(utterances)

    def overloaded(self, utterances: int, now_s: float) -> bool:
        """Returns whether steps of `utterances` take longer than their audio, and have for a while."""
        over = self.utilisation(utterances, now_s) > 1
        if over == self._overloaded:
            self._contradicted_s = None
        elif self._contradicted_s is None:
            self._contradicted_s = now_s
        elif now_s - self._contradicted_s >= (_OVERLOADED_S if over else _RECOVERED_S):
            self._overloaded, self._contradicted_s = over, None
        return self._overloaded

    def explain(self, utterances: int, *, steps: bool) -> str:
        """Says for a log which share of a frame's time each stage needs, and with `steps` from which that follows."""

        def needs(stage: Stage, curve: LatencyCurve) -> str:
            share = f"the {stage.name} needs {100 * stage.utilisation(curve, utterances):.0f} % of a frame's time"
            return f"{share} ({curve})" if steps else share

        return f"with {utterances} {'; '.join(map(needs, self.stages, self._curves))}"

    def _utilisation(self, utterances: int) -> float:
        stages = zip(self.stages, self._curves, strict=True)
        return max((stage.utilisation(curve, utterances) for stage, curve in stages), default=0.0)

    def _largest(self, limit: float) -> int:
        """Returns the most utterances, 1 to `slots`, whose utilisation (which rises with them) is within `limit`."""
        return max(1, bisect.bisect_right(range(1, self._slots + 1), limit, key=self._utilisation))


CALIBRATION_FRAMES = 16
"""Most frames of each utterance of a calibration: twice as many as a GPU's generate by default before any is heard."""
MAX_DOUBLING, MAX_QUADRUPLING = 16, 256
"""Utterances at once from which every second doubling is left out, because each is as much work as all before it, and
from which all but the last are."""
_TEXT = "One, two, three, four, five, six."
_MIN_CALIBRATION_S = 1.5
"""A calibration takes at least this long, because a machine that seems slow may have had a bad moment."""
_MAX_CALIBRATION_S = 60.0
_ALL_HEARD_FRAMES = 10**6
"""More frames than an utterance has: generation never waits for playback."""


async def calibrate(capacity: Capacity, slots: int, open_speech: Callable[[int], Speech]) -> None:
    """Speaks with 1, 2, 4, 8, 16, 64, 256 and `slots` utterances at once, until the capacity admits no more than that.

    `open_speech` opens one of at most as many frames as its argument. Talker, codec and this process work at the same
    time, as they will later, so that their effect on each other is measured too. Raises EngineError when the voice
    cannot speak or makes no audio.
    """
    loop = asyncio.get_running_loop()
    began_s, together = loop.time(), 1
    capacity.following = False
    try:
        async with asyncio.timeout(_MAX_CALIBRATION_S):
            # The first utterance finds all caches cold.
            first = open_speech(CALIBRATION_FRAMES)
            await _speak_together([first])
            capacity.reset()
            while True:
                await _speak_together([open_speech(CALIBRATION_FRAMES) for _ in range(together)])
                capacity.commit_baseline(loop.time())
                enough = together >= capacity.utterances(loop.time()) and loop.time() - began_s >= _MIN_CALIBRATION_S
                if together >= slots or enough:
                    break
                factor = 2 if together < MAX_DOUBLING else 4 if together < MAX_QUADRUPLING else slots
                together = min(factor * together, slots)
    except RequestError as error:
        log.warning("calibration skipped, capacity is measured while speaking only: %s", error.message)
    except TimeoutError:
        if first.milestones.first_pcm_s is None:
            raise EngineError(f"the voice model made no audio in {_MAX_CALIBRATION_S:g} s") from None
        log.warning("calibration stopped after %g s", _MAX_CALIBRATION_S)
        capacity.commit_baseline(loop.time())
    finally:
        capacity.following = True
    found = capacity.utterances(loop.time())
    took_s, reason = loop.time() - began_s, capacity.explain(found, steps=True)
    log.info("capacity: %d utterances at once, measured in %.1f s: %s", found, took_s, reason)


async def _speak_together(speeches: Sequence[Speech]) -> None:
    """Speaks all; none continues beyond what is generated ahead before each has its first audio.

    Prompts of many utterances take longer to read than their first frames: without that, the first ones would end
    before the last ones begin, and no step would have nearly as many rows as there are utterances. Where credit goes
    to one group of the utterances after the other, steps begin with the rows of one group.
    """
    silent = len(speeches)

    def on_begun() -> None:
        nonlocal silent
        silent -= 1
        if silent == 0:
            for speech in speeches:
                speech.advance(_ALL_HEARD_FRAMES)

    speaking = [asyncio.create_task(_speak(speech, on_begun)) for speech in speeches]
    try:
        await asyncio.gather(*speaking)
    finally:
        # Behind a failure the others may wait for the first audio of one that has none.
        for task in speaking:
            task.cancel()
        await asyncio.wait(speaking)


async def _speak(speech: Speech, on_begun: Callable[[], None]) -> None:
    """Speaks one utterance; `on_begun` is called once, with its first audio or when it ends without."""
    has_begun = False
    try:
        speech.push_text(_TEXT)
        speech.end()
        async for _ in speech:
            if not has_begun:
                has_begun = True
                on_begun()
            if speech.lost:
                raise EngineLost("the engine was lost while its capacity was measured")
    finally:
        await speech.aclose()
        if not has_begun:
            on_begun()
