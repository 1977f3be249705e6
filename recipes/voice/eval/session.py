"""Speaks the tasks with the gateway's synthesizer in this process, and judges them on all cores."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm
from voxgate.pipeline.interface import FinishReason, SamplingOptions, Speech, SpeechRequest, Synthesizer, WordTime
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

from .judging import judge
from .judging.sound import drift_db, resampled, speech_extent
from .measurements import Measurement, MeasurementLog
from .plan import Task
from .sources import Sources

CONCURRENT_UTTERANCES = 12
"""A step for twelve utterances costs much less than twelve steps."""
_DEADLINE_S = 300.0
"""Limit for one utterance: ten sentences need half a minute, on a busy machine a few times as long."""


@dataclass(frozen=True, slots=True)
class SynthesizedUtterance:
    """`pcm`: float32 [n] at 24 kHz. `arrivals_s`: arrival of each frame, from the first text on. `words`: if asked."""

    pcm: NDArray[np.float32]
    ended: bool
    arrivals_s: list[float]
    words: list[WordTime] = field(default_factory=list)


class Speaker:
    """Speaks up to `concurrent` utterances at a time; further ones wait."""

    def __init__(self, synthesizer: Synthesizer, concurrent: int) -> None:
        self._synthesizer = synthesizer
        self._turn = asyncio.Semaphore(concurrent)

    @property
    def voices(self) -> list[str]:
        """Names of the voices."""
        return list(self._synthesizer.voices)

    async def speak(
        self,
        voice: str,
        written: str,
        seed: int,
        sampling: SamplingOptions,
        words_per_s: float = inf,
        *,
        words: bool = False,
    ) -> SynthesizedUtterance:
        """Speak one utterance, with its text at once or word by word at `words_per_s`; `words`: with their times.

        Raises what `Synthesizer.open` and the iteration of `Speech` raise, and TimeoutError.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    return await self._speak(voice, written, seed, sampling, words_per_s, words=words)
            except TimeoutError as error:
                raise TimeoutError(f"an utterance must end within {_DEADLINE_S:.0f} s: {written[:60]!r}") from error

    async def _speak(
        self, voice: str, written: str, seed: int, sampling: SamplingOptions, words_per_s: float, *, words: bool
    ) -> SynthesizedUtterance:
        paced = words_per_s < inf
        request = SpeechRequest(voice, sampling=sampling, seed=seed, paced=paced, words=words)
        speech = self._synthesizer.open(request)
        clock_s = asyncio.get_running_loop().time
        began_s = clock_s()
        writing = asyncio.create_task(_write(speech, written, words_per_s))
        try:
            parts, arrivals_s = [], []
            times: list[WordTime] = []
            async for chunk in speech:
                parts.append(chunk.pcm)
                times += chunk.words
                arrivals_s += [clock_s() - began_s] * chunk.frames
                speech.advance(len(arrivals_s))
            pcm = np.concatenate(parts) if parts else np.zeros(0, np.float32)
            return SynthesizedUtterance(pcm, speech.finish_reason is FinishReason.END, arrivals_s, times)
        finally:
            writing.cancel()
            await speech.aclose()


async def _write(speech: Speech, written: str, words_per_s: float) -> None:
    """Push the text word by word, then end it."""
    clock_s = asyncio.get_running_loop().time
    began_s = clock_s()
    for number, word in enumerate(re.findall(r"\S+\s*", written)):
        await asyncio.sleep(max(0.0, began_s + number / words_per_s - clock_s()))
        speech.push_text(word)
    speech.end()


@asynccontextmanager
async def open_speaker(checkpoint: Path, concurrent: int = CONCURRENT_UTTERANCES) -> AsyncIterator[Speaker]:
    """Load the checkpoint's voices for the duration of the block."""
    synthesizer = QwenSynthesizer(checkpoint, SynthesizerOptions(slots=concurrent))
    await synthesizer.start()
    try:
        yield Speaker(synthesizer, concurrent)
    finally:
        await synthesizer.close()


Make = Callable[[Task], Awaitable[tuple[Pcm, bool]]]
"""Makes the audio of a task, float32 [n] at 24 kHz, and whether it ended by itself."""
_REPORT_S = 15.0
_MAX_UTTERANCES = 32
"""Utterances in progress, being spoken or judged; bounds the memory."""


@dataclass(slots=True)
class _Progress:
    total: int
    done: int = 0
    reported_s: float = 0.0

    def step(self, name: str) -> None:
        self.done += 1
        now_s = time.monotonic()
        if now_s - self.reported_s > _REPORT_S or self.done == self.total:
            self.reported_s = now_s
            print(f"{name}: {self.done} of {self.total}", file=sys.stderr, flush=True)


class JudgePool:
    """A process with a judge per core."""

    def __init__(self) -> None:
        # Spawned, because this process has threads.
        self._pool = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), judge.open_judge)

    def __enter__(self) -> JudgePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    async def judge(self, pcm: Pcm, scored: bool) -> judge.Judgement:
        """Judge float32 [n] at 24 kHz."""
        samples = resampled(pcm, SAMPLE_RATE_HZ, judge.RATE_HZ)
        return await asyncio.get_running_loop().run_in_executor(self._pool, judge.judge, samples, scored)


async def perform(
    name: str, tasks: Sequence[Task], make: Make, judges: JudgePool, log: MeasurementLog, until_s: float = inf
) -> None:
    """Make and measure every task that is not in the log yet, or without the score it needs, and add it to the log.

    No task starts after `until_s`, on the event loop's clock.
    """
    missing = [task for task in tasks if (known := log.get(task.key)) is None or (task.scored and known.mos is None)]
    progress, slots = _Progress(len(missing)), asyncio.Semaphore(_MAX_UTTERANCES)

    async def one(task: Task) -> None:
        try:
            pcm, ended = await make(task)
            judgement = await judges.judge(pcm, task.scored)
        finally:
            slots.release()
        extent = speech_extent(pcm)
        log.add(
            Measurement(
                task.key,
                ended,
                len(pcm) / SAMPLE_RATE_HZ,
                extent.leading_silence_s,
                extent.speech_s,
                extent.pauses_s,
                judgement.text,
                judgement.mos,
                judgement.speaker,
                judgement.speaker_kept,
                drift_db(pcm),
            )
        )
        progress.step(name)

    async with asyncio.TaskGroup() as group:
        for task in missing:
            await slots.acquire()
            if asyncio.get_running_loop().time() >= until_s:
                break
            group.create_task(one(task))


def from_source(sources: Sources) -> Make:
    """`Make` with the source voices, one text at a time."""
    turn = asyncio.Lock()

    async def make(task: Task) -> tuple[Pcm, bool]:
        async with turn:
            return await asyncio.to_thread(sources.read, task.key.voice, task.key.spoken), True

    return make


def from_voice(speaker: Speaker) -> Make:
    """`Make` with the checkpoint's voices."""

    async def make(task: Task) -> tuple[Pcm, bool]:
        key = task.key
        sampling = SamplingOptions(temperature=key.temperature, predictor_temperature=key.predictor_temperature)
        utterance = await speaker.speak(key.voice, task.line.written, key.seed, sampling)
        return utterance.pcm, utterance.ended

    return make
