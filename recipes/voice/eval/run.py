"""The kinds of runs: the source voices alone, everything of a checkpoint, and a comparison of temperatures."""

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
from .figures import Pair, VoiceFigures, WordErrors, figures, pairs, source_word_errors, word_errors
from .listener import SpeechRecogniser
from .plan import SWEEP, EvaluationSize, NearestInLength, Task, codec_tasks, source_tasks, sweep_tasks, voice_tasks
from .session import Make, RecogniserPool, Speaker, from_source, from_voice, perform, speaker
from .speed import SynthesisSpeed
from .takes import TakeLog

ALL = "all"
_ARRIVALS = 12
"""Sentences whose text arrives word by word, in real time; a part of them as of the other texts."""


@dataclass(frozen=True, slots=True)
class Run:
    """`voices`: None for all of the checkpoint's. `temperatures`: of the talker and of the code predictor."""

    checkpoint: Path
    voices: tuple[str, ...] | None
    extent: EvaluationSize
    temperatures: tuple[float, float]
    takes: TakeLog
    sources: TakeLog
    minutes: float = inf
    """After so many no other utterance is begun, and the figures are of those there are."""
    timings: bool = True
    encoder: Path | None = None

    @property
    def sampling(self) -> SamplingOptions:
        return SamplingOptions(temperature=self.temperatures[0], predictor_temperature=self.temperatures[1])


@dataclass(frozen=True, slots=True)
class Results:
    """`voices`: each, and "all" where there are several. `sources`: word errors of each by set. `codec`: those of the
    sentences, the source's sound encoded and decoded; empty without an encoder."""

    temperatures: tuple[float, float]
    extent: EvaluationSize
    size_mb: float
    voices: list[VoiceFigures]
    sources: dict[str, dict[str, float]]
    codec: dict[str, WordErrors]
    arrivals: list[ArrivalFigures]
    speed: SynthesisSpeed | None


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A temperature is None where all of them are taken together."""

    temperature: float | None
    predictor_temperature: float | None
    figures: VoiceFigures


async def read_sources(run: Run) -> dict[str, dict[str, float]]:
    """What the recogniser gets wrong of flite's own voices."""
    nearest = NearestInLength(SpeechRecogniser().knows)
    errors = {}
    with RecogniserPool() as ears:
        for voice in run.voices or sources.VOICES:
            tasks = source_tasks(voice, run.extent, nearest)
            await perform(f"{voice} of flite", tasks, from_source, ears, run.sources)
            errors[voice] = source_word_errors(tasks, run.sources)
    return errors


async def evaluate(run: Run) -> Results:
    """Everything, timings last, when no recogniser is at work any more."""
    nearest = NearestInLength(SpeechRecogniser().knows)
    round_trip = _round_trip(run)
    until_s = asyncio.get_running_loop().time() + run.minutes * 60
    async with speaker(run.checkpoint) as speaking:
        voices = _known(run.voices or speaking.voices)
        tasks = {voice: voice_tasks(voice, run.extent, nearest, run.temperatures) for voice in voices}
        with RecogniserPool() as ears:
            await _sources(voices, run, nearest, ears)
            if round_trip is not None:
                encoded = [task for voice in voices for task in codec_tasks(voice, run.extent, nearest)]
                await perform("codec", encoded, round_trip, ears, run.takes)
            # In turn and by seeds, so that a run that was stopped knows as much of every voice.
            in_turn = list(chain.from_iterable(zip(*tasks.values(), strict=True)))
            await perform(", ".join(voices), in_turn, from_voice(speaking), ears, run.takes, until_s)
        arrivals = await _arrivals(run, speaking, voices)
    return Results(
        temperatures=run.temperatures,
        extent=run.extent,
        size_mb=sum(path.stat().st_size for path in run.checkpoint.rglob("*.safetensors")) / 1e6,
        voices=_figures(tasks, run),
        sources={voice: source_word_errors(source_tasks(voice, run.extent, nearest), run.sources) for voice in voices},
        codec={
            voice: word_errors(done)
            for voice in voices
            if (done := pairs(codec_tasks(voice, run.extent, nearest), run.takes, run.sources))
        },
        arrivals=arrivals,
        speed=speed.measure(run.checkpoint, voices[0]) if run.timings else None,
    )


async def sweep(run: Run, temperatures: Sequence[float]) -> list[SweepRow]:
    """All pairs of temperatures; then each of either alone, over all of the other."""
    nearest = NearestInLength(SpeechRecogniser().knows)
    found: dict[tuple[float, float], list[Pair]] = {}
    async with speaker(run.checkpoint) as speaking:
        voices = _known(run.voices or speaking.voices)
        with RecogniserPool() as ears:
            await _sources(voices, replace(run, extent=SWEEP), nearest, ears)
            for pair in product(temperatures, temperatures):
                tasks = sweep_tasks(voices, nearest, pair)
                await perform(f"{pair[0]:g} / {pair[1]:g}", tasks, from_voice(speaking), ears, run.takes)
                found[pair] = pairs(tasks, run.takes, run.sources)
    rows = [SweepRow(*pair, figures(ALL, of)) for pair, of in found.items()]
    for value in temperatures:
        alone = [done for (talker, _), of in found.items() if talker == value for done in of]
        rows.append(SweepRow(value, None, figures(ALL, alone)))
    for value in temperatures:
        alone = [done for (_, predictor), of in found.items() if predictor == value for done in of]
        rows.append(SweepRow(None, value, figures(ALL, alone)))
    return rows


def _known(voices: Sequence[str]) -> list[str]:
    known = [voice for voice in voices if voice in sources.VOICES]
    if not known:
        raise OSError(f"none of the voices {', '.join(voices)} has a source in flite ({', '.join(sources.VOICES)})")
    return known


async def _sources(voices: Sequence[str], run: Run, nearest: NearestInLength, ears: RecogniserPool) -> None:
    for voice in voices:
        await perform(f"{voice} of flite", source_tasks(voice, run.extent, nearest), from_source, ears, run.sources)


def _round_trip(run: Run) -> Make | None:
    if run.encoder is None:
        return None
    from .codec import RoundTrip  # brings the recipe and torch with it

    return RoundTrip(run.encoder, run.checkpoint)


async def _arrivals(run: Run, speaking: Speaker, voices: Sequence[str]) -> list[ArrivalFigures]:
    if not run.timings:
        return []
    return await arrival.measure(speaking, voices, run.sampling, -(-_ARRIVALS // run.extent.stride))


def _figures(tasks: Mapping[str, Sequence[Task]], run: Run) -> list[VoiceFigures]:
    of = {voice: pairs(own, run.takes, run.sources) for voice, own in tasks.items()}
    rows = [figures(voice, own) for voice, own in of.items() if own]
    if len(rows) > 1:
        rows.append(figures(ALL, [pair for own in of.values() for pair in own]))
    return rows
