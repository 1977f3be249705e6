"""What a start of the engine is doing and how long it still takes, by the durations of the last one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)


class StartStep(NamedTuple):
    """What is done, and since when: `begun_s` of the monotonic clock, which all processes of a machine share.

    At its beginning, where the process that does it has a GPU: `free_bytes` of its memory, `tensor_bytes` that torch
    holds for tensors and graphs.
    """

    doing: str
    begun_s: float
    free_bytes: int | None = None
    tensor_bytes: int = 0


class StartProgress:
    """Steps of the start in progress. `enter` may be called in any thread; the rest belongs to one.

    `history`: file that keeps the durations of the last start; None: they are not kept.
    """

    def __init__(self, history: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._history, self._clock = history, clock
        self._steps: list[StartStep] = []
        self._read_followed: Callable[[], Sequence[StartStep]] = tuple
        self._last: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """Begins a start with its first step; forgets the one before."""
        self._steps, self._last = [StartStep(step, self._clock())], self._read_history()

    def enter(self, step: str) -> None:
        """Ends the step before."""
        self._steps.append(StartStep(step, self._clock()))

    @contextmanager
    def following(self, read: Callable[[], Sequence[StartStep]]) -> Iterator[None]:
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
        following = [*self._steps[1:], StartStep("", self._clock())]
        durations = {
            step.doing: after.begun_s - step.begun_s for step, after in zip(self._steps, following, strict=True)
        }
        each = ", ".join(f"{doing} {seconds:.1f}" for doing, seconds in durations.items())
        log.info("start took %.1f s: %s", sum(durations.values()), each)
        taken = [
            f"{step.doing} {_gb(step.free_bytes - after.free_bytes)} ({_gb(after.tensor_bytes - step.tensor_bytes)})"
            for step, after in pairwise(self._steps)
            if step.free_bytes is not None and after.free_bytes is not None
        ]
        if taken:
            log.info("GB of the GPU's memory taken by (of it for tensors): %s", ", ".join(taken))
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
        doing, begun_s = steps[-1].doing, steps[-1].begun_s
        if doing not in self._last:
            return doing
        order = list(self._last)
        left_s = max(0.0, self._last[doing] - (self._clock() - begun_s))
        left_s += sum(self._last[later] for later in order[order.index(doing) + 1 :])
        return f"{doing}, about {max(1, round(left_s))} s left"

    def _read_history(self) -> dict[str, float]:
        if self._history is None:
            return {}
        try:
            durations = json.loads(self._history.read_text(encoding="utf-8"))
            return {str(step): float(seconds) for step, seconds in durations.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # of no start, or of another version
            return {}


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f}"
