"""What a start of the engine is doing and how long it still takes, by the durations of the last one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

Step = tuple[str, float]
"""What is done, and since when: seconds of the monotonic clock, which all processes of a machine share."""


class StartProgress:
    """Steps of the start in progress. `enter` may be called in any thread; the rest belongs to one.

    `history`: file that keeps the durations of the last start; None: they are not kept.
    """

    def __init__(self, history: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._history, self._clock = history, clock
        self._steps: list[Step] = []
        self._read_followed: Callable[[], Sequence[Step]] = tuple
        self._last: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """Begins a start with its first step; forgets the one before."""
        self._steps, self._last = [(step, self._clock())], self._read_history()

    def enter(self, step: str) -> None:
        """Ends the step before."""
        self._steps.append((step, self._clock()))

    @contextmanager
    def following(self, read: Callable[[], Sequence[Step]]) -> Iterator[None]:
        """Includes the steps of another process, which `read` returns, while and after the context runs."""
        self._read_followed = read
        try:
            yield
        finally:
            self._steps += read()
            self._read_followed = tuple

    def finish(self) -> None:
        """Ends the start, logs its durations, and keeps them for the next one."""
        if not self._steps:
            return
        ends = [begun_s for _, begun_s in self._steps[1:]] + [self._clock()]
        durations = {step: end_s - begun_s for (step, begun_s), end_s in zip(self._steps, ends, strict=True)}
        each = ", ".join(f"{step} {seconds:.1f}" for step, seconds in durations.items())
        log.info("start took %.1f s: %s", sum(durations.values()), each)
        if self._history is None:
            return
        try:
            self._history.parent.mkdir(parents=True, exist_ok=True)
            self._history.write_text(json.dumps(durations), encoding="utf-8")
        except OSError as error:
            log.debug("durations of the start are not kept: %s", error)

    def __str__(self) -> str:
        """The step in progress, and the time left if the last start is known; empty before `begin`."""
        steps = [*self._steps, *self._read_followed()]
        if not steps:
            return ""
        step, begun_s = steps[-1]
        if step not in self._last:
            return step
        order = list(self._last)
        left_s = max(0.0, self._last[step] - (self._clock() - begun_s))
        left_s += sum(self._last[later] for later in order[order.index(step) + 1 :])
        return f"{step}, about {max(1, round(left_s))} s left"

    def _read_history(self) -> dict[str, float]:
        if self._history is None:
            return {}
        try:
            durations = json.loads(self._history.read_text(encoding="utf-8"))
            return {str(step): float(seconds) for step, seconds in durations.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # of no start, or of another version
            return {}
