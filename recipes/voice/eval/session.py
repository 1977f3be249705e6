"""The voice under test, through the project's own pipeline: the synthesizer that the gateway uses, in process."""
# TODO-DOC A run: utterances are made side by side, listened to on every core, and written down one by one.

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm
from voxgate.pipeline.interface import FinishReason, SamplingOptions, Speech, SpeechRequest, Synthesizer
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

from . import listener, sources
from .plan import Task
from .sound import for_listening, shape
from .takes import Take, TakeLog

AT_ONCE = 12
"""Utterances spoken side by side: a step for twelve costs much less than twelve steps."""
_DEADLINE_S = 300.0
"""Of one utterance: ten sentences take half a minute, on a busy machine a few times that."""


@dataclass(frozen=True, slots=True)
class SynthesizedUtterance:
    """`pcm`: float32 [n] at 24 kHz. `arrivals_s`: when each 80 ms of it were there, from the first text on."""

    pcm: NDArray[np.float32]
    ended: bool
    arrivals_s: list[float]


class Speaker:
    """Speaks up to `at_once` utterances side by side; further ones wait their turn."""

    def __init__(self, synthesizer: Synthesizer, at_once: int) -> None:
        self._synthesizer = synthesizer
        self._turn = asyncio.Semaphore(at_once)

    @property
    def voices(self) -> list[str]:
        return list(self._synthesizer.voices)

    async def speak(
        self, voice: str, written: str, seed: int, sampling: SamplingOptions, words_per_s: float = inf
    ) -> SynthesizedUtterance:
        """One utterance, its text at once, or a word at a time as `words_per_s` tells.

        Raises what `Synthesizer.open` and the iteration of `Speech` raise, and TimeoutError.
        """
        async with self._turn, asyncio.timeout(_DEADLINE_S):
            speech = self._synthesizer.open(SpeechRequest(voice, sampling=sampling, seed=seed, paced=words_per_s < inf))
            clock_s = asyncio.get_running_loop().time
            began_s = clock_s()
            writing = asyncio.create_task(_write(speech, written, words_per_s))
            try:
                parts, arrivals_s = [], []
                async for chunk in speech:
                    parts.append(chunk.pcm)
                    arrivals_s += [clock_s() - began_s] * chunk.frames
                    speech.advance(len(arrivals_s))
                pcm = np.concatenate(parts) if parts else np.zeros(0, np.float32)
                return SynthesizedUtterance(pcm, speech.finish_reason is FinishReason.END, arrivals_s)
            finally:
                writing.cancel()
                await speech.aclose()


async def _write(speech: Speech, written: str, words_per_s: float) -> None:
    """A word and its blank at a time, as a language model or a hand would write them; the end with the last word."""
    clock_s = asyncio.get_running_loop().time
    began_s = clock_s()
    for number, word in enumerate(re.findall(r"\S+\s*", written)):
        await asyncio.sleep(max(0.0, began_s + number / words_per_s - clock_s()))
        speech.push_text(word)
    speech.end()


@asynccontextmanager
async def speaker(checkpoint: Path, at_once: int = AT_ONCE) -> AsyncIterator[Speaker]:
    """The checkpoint's voices, loaded; every process of theirs is gone afterwards."""
    synthesizer = QwenSynthesizer(checkpoint, SynthesizerOptions(slots=at_once))
    await synthesizer.start()
    try:
        yield Speaker(synthesizer, at_once)
    finally:
        await synthesizer.close()


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


class RecogniserPool:
    """A recogniser on every core."""

    def __init__(self) -> None:
        # Not forked: the parent has threads, and a model of its own.
        self._pool = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), listener.open_recogniser)

    def __enter__(self) -> RecogniserPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    async def listen(self, pcm: Pcm, candidates: Sequence[str]) -> listener.Recognition:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, listener.listen, for_listening(pcm), tuple(candidates))


async def perform(
    name: str, tasks: Sequence[Task], make: Make, ears: RecogniserPool, ledger: TakeLog, until_s: float = inf
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
            Take(
                task.said, ended, len(pcm) / SAMPLE_RATE_HZ, form.lead_s, form.span_s, form.pauses_s, heard.text, chosen
            )
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
