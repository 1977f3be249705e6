"""The kinds of runs: source voices alone, all measurements of a checkpoint, and a comparison of temperatures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import inf
from pathlib import Path

from voxgate.pipeline.interface import SamplingOptions

from . import arrival, sources, speed
from .arrival import ArrivalFigures
from .figures import (
    MosFigures,
    Pair,
    SourceFigures,
    VoiceFigures,
    WordErrors,
    figures,
    opinion_scores,
    pairs,
    source_figures,
    word_errors,
)
from .measurements import MeasurementLog
from .plan import SWEEP, EvaluationSize, Task, codec_tasks, source_tasks, sweep_tasks, voice_tasks
from .session import JudgePool, Make, Speaker, from_source, from_voice, open_speaker, perform
from .speed import SynthesisSpeed

ALL = "all"
_ARRIVALS = 12
"""Sentences whose text arrives word by word in real time, in a full run."""


@dataclass(frozen=True, slots=True)
class Run:
    """Options of a run.

    `voices`: None for all voices of the checkpoint. `temperatures`: of the talker and the code predictor.
    """

    checkpoint: Path
    voices: tuple[str, ...] | None
    size: EvaluationSize
    temperatures: tuple[float, float]
    measurements: MeasurementLog
    sources: MeasurementLog
    minutes: float = inf
    """No utterance starts after this time; figures then cover those that exist."""
    timings: bool = True
    encoder: Path | None = None

    @property
    def sampling(self) -> SamplingOptions:
        """Both temperatures as sampling options."""
        return SamplingOptions(temperature=self.temperatures[0], predictor_temperature=self.temperatures[1])


@dataclass(frozen=True, slots=True)
class Results:
    """Figures of a full run.

    `voices`: of each voice, and of "all" if there are several. `sources`: figures of the
    source voices. `codec`: figures of source sentences encoded and decoded; empty without an encoder.
    """

    temperatures: tuple[float, float]
    size: EvaluationSize
    size_mb: float
    voices: list[VoiceFigures]
    sources: dict[str, SourceFigures]
    codec: dict[str, tuple[WordErrors, MosFigures]]
    arrivals: list[ArrivalFigures]
    speed: SynthesisSpeed | None


@dataclass(frozen=True, slots=True)
class SweepRow:
    """Figures of one pair of temperatures; None stands for all values of one."""

    temperature: float | None
    predictor_temperature: float | None
    figures: VoiceFigures


async def read_sources(run: Run) -> dict[str, SourceFigures]:
    """Figures of the source voices."""
    found = {}
    with JudgePool() as judges:
        for voice in run.voices or sources.VOICES:
            tasks = source_tasks(voice, run.size)
            await perform(f"source of {voice}", tasks, from_source, judges, run.sources)
            found[voice] = source_figures(tasks, run.sources)
    return found


async def evaluate(run: Run) -> Results:
    """Make all measurements; timings last, when no judge is running."""
    round_trip = _round_trip(run)
    until_s = asyncio.get_running_loop().time() + run.minutes * 60
    async with open_speaker(run.checkpoint) as speaker:
        voices = _known(run.voices or speaker.voices)
        tasks = {voice: voice_tasks(voice, run.size, run.temperatures) for voice in voices}
        with JudgePool() as judges:
            await _sources(voices, run, judges)
            if round_trip is not None:
                encoded = [task for voice in voices for task in codec_tasks(voice, run.size)]
                await perform("codec", encoded, round_trip, judges, run.measurements)
            # Voices alternate, so that a stopped run has as many measurements of each.
            in_turn = list(chain.from_iterable(zip(*tasks.values(), strict=True)))
            await perform(", ".join(voices), in_turn, from_voice(speaker), judges, run.measurements, until_s)
        arrivals = await _arrivals(run, speaker, voices)
    return Results(
        temperatures=run.temperatures,
        size=run.size,
        size_mb=sum(path.stat().st_size for path in run.checkpoint.rglob("*.safetensors")) / 1e6,
        voices=_figures(tasks, run),
        sources={voice: source_figures(source_tasks(voice, run.size), run.sources) for voice in voices},
        codec={
            voice: (word_errors(done), opinion_scores(done))
            for voice in voices
            if (done := pairs(codec_tasks(voice, run.size), run.measurements, run.sources))
        },
        arrivals=arrivals,
        speed=speed.measure(run.checkpoint, voices[0]) if run.timings else None,
    )


async def sweep(run: Run, temperatures: Sequence[float]) -> list[SweepRow]:
    """Figures of all pairs of temperatures, then of each value over all values of the other temperature."""
    found: dict[tuple[float, float], list[Pair]] = {}
    async with open_speaker(run.checkpoint) as speaker:
        voices = _known(run.voices or speaker.voices)
        with JudgePool() as judges:
            await _sources(voices, replace(run, size=SWEEP), judges)
            for pair in product(temperatures, temperatures):
                tasks = sweep_tasks(voices, pair)
                await perform(f"{pair[0]:g} / {pair[1]:g}", tasks, from_voice(speaker), judges, run.measurements)
                found[pair] = pairs(tasks, run.measurements, run.sources)
    rows = [SweepRow(*pair, figures(ALL, of)) for pair, of in found.items()]
    for value in temperatures:
        matching = [done for (talker, _), of in found.items() if talker == value for done in of]
        rows.append(SweepRow(value, None, figures(ALL, matching)))
    for value in temperatures:
        matching = [done for (_, predictor), of in found.items() if predictor == value for done in of]
        rows.append(SweepRow(None, value, figures(ALL, matching)))
    return rows


def _known(voices: Sequence[str]) -> list[str]:
    known = [voice for voice in voices if voice in sources.VOICES]
    if not known:
        raise OSError(f"none of the voices {', '.join(voices)} has a source ({', '.join(sources.VOICES)})")
    return known


async def _sources(voices: Sequence[str], run: Run, judges: JudgePool) -> None:
    for voice in voices:
        await perform(f"source of {voice}", source_tasks(voice, run.size), from_source, judges, run.sources)


def _round_trip(run: Run) -> Make | None:
    if run.encoder is None:
        return None
    from .codec import RoundTrip  # imports the training recipe and torch

    return RoundTrip(run.encoder, run.checkpoint)


async def _arrivals(run: Run, speaker: Speaker, voices: Sequence[str]) -> list[ArrivalFigures]:
    if not run.timings:
        return []
    return await arrival.measure(speaker, voices, run.sampling, -(-_ARRIVALS // run.size.stride))


def _figures(tasks: Mapping[str, Sequence[Task]], run: Run) -> list[VoiceFigures]:
    of = {voice: pairs(own, run.measurements, run.sources) for voice, own in tasks.items()}
    rows = [figures(voice, own) for voice, own in of.items() if own]
    if len(rows) > 1:
        rows.append(figures(ALL, [pair for own in of.values() for pair in own]))
    return rows
