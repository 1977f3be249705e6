"""A run: utterances are made side by side, listened to on every core, and written down one by one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import inf
from multiprocessing import get_context
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from voxgate.pipeline.speech import SamplingOptions

from . import listener, sources
from .plan import Task
from .sound import RATE_HZ, for_listening, shape
from .speaker import Speaker
from .takes import Ledger, Take

Pcm = NDArray[np.float32]
Make = Callable[[Task], Awaitable[tuple[Pcm, bool]]]
"""Makes the sound of a task: float32 [n] at 24 kHz, and whether it ended by itself."""
_REPORT_S = 15.0
_WAITING = 32
"""Utterances under way at once, made or being listened to: what bounds the memory."""


@dataclass(slots=True)
class _Progress:
    total: int
    done: int = 0
    told_s: float = 0.0

    def step(self, name: str) -> None:
        self.done += 1
        now_s = time.monotonic()
        if now_s - self.told_s > _REPORT_S or self.done == self.total:
            self.told_s = now_s
            print(f"{name}: {self.done} of {self.total}", file=sys.stderr, flush=True)


class Ears:
    """A recogniser on every core."""

    def __init__(self) -> None:
        # Not forked: the parent has threads, and a model of its own.
        self._pool = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), listener.open_ears)

    def __enter__(self) -> Ears:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    async def listen(self, pcm: Pcm, candidates: Sequence[str]) -> listener.Heard:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, listener.listen, for_listening(pcm), tuple(candidates))


async def perform(
    name: str, tasks: Sequence[Task], make: Make, ears: Ears, ledger: Ledger, until_s: float = inf
) -> None:
    """Make, hear and write down every task that the ledger does not have; what it has by then is safe.

    After `until_s`, on the event loop's clock, no other is begun.
    """
    missing = [task for task in tasks if task.said not in ledger]
    progress, room = _Progress(len(missing)), asyncio.Semaphore(_WAITING)

    async def one(task: Task) -> None:
        try:
            pcm, ended = await make(task)
            heard = await ears.listen(pcm, task.candidates)
        finally:
            room.release()
        form = shape(pcm)
        chosen = heard.choice == 0 if task.candidates else None
        ledger.add(
            Take(task.said, ended, len(pcm) / RATE_HZ, form.lead_s, form.span_s, form.pauses_s, heard.text, chosen)
        )
        progress.step(name)

    async with asyncio.TaskGroup() as group:
        for task in missing:
            await room.acquire()
            if asyncio.get_running_loop().time() >= until_s:
                break
            group.create_task(one(task))


async def from_source(task: Task) -> tuple[Pcm, bool]:
    """`Make` by flite."""
    return sources.read(task.said.voice, task.said.spoken), True


def from_voice(speaker: Speaker) -> Make:
    """`Make` by the checkpoint under test."""

    async def make(task: Task) -> tuple[Pcm, bool]:
        said = task.said
        sampling = SamplingOptions(temperature=said.temperature, predictor_temperature=said.predictor_temperature)
        utterance = await speaker.speak(said.voice, task.line.written, said.seed, sampling)
        return utterance.pcm, utterance.ended

    return make
