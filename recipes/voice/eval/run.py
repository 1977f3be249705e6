"""The kinds of runs: source voices alone, all measurements of a checkpoint, and a comparison of temperatures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from voxgate.pipeline.interface import SamplingOptions

from . import arrival, sources, speed
from .arrival import ArrivalFigures
from .figures import (
    MosFigures,
    Pair,
    SourceFigures,
    SpeakerFigures,
    VoiceFigures,
    WordErrors,
    figures,
    opinion_scores,
    pairs,
    source_figures,
    speakers,
    suspicious,
    word_errors,
)
from .measurements import SOURCE, MeasurementLog, UtteranceKey
from .plan import SWEEP, EvaluationSize, Task, codec_tasks, source_tasks, sweep_tasks, voice_tasks
from .session import JudgePool, Speaker, from_source, from_voice, open_speaker, perform
from .sources import Sources
from .speed import SynthesisSpeed

if TYPE_CHECKING:  # imports the training recipe
    from .codec import RoundTrip
    from .word_times import WordTimeFigures

ALL = "all"
REFERENCE = "rms"
"""Flite's clearest voice, given for comparison."""
_ARRIVALS = 12
"""Sentences whose text arrives word by word in real time, in a full run."""
_WORD_TIMES_STRIDE = 3
"""One sentence in three: about 600 words."""


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
    sources: Sources
    source_measurements: MeasurementLog
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

    `voices`: of each voice, and of "all" if there are several. `sources`: of the source voices. `reference`: of
    REFERENCE; None if it is evaluated itself. `speakers`: empty for a single voice. `codec`: of source sentences
    encoded and decoded. Without an encoder this is empty, and `word_times`, of the teacher's speech, None;
    `own_word_times`, of the voice's, is None without the voice that imitates that teacher.
    """

    temperatures: tuple[float, float]
    size: EvaluationSize
    size_mb: float
    voices: list[VoiceFigures]
    sources: dict[str, SourceFigures]
    reference: SourceFigures | None
    speakers: dict[str, SpeakerFigures]
    codec: dict[str, tuple[WordErrors, MosFigures | None]]
    word_times: WordTimeFigures | None
    own_word_times: WordTimeFigures | None
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
            await _measure_source(voice, run, judges)
            found[voice] = source_figures(tasks, run.source_measurements)
    return found


async def evaluate(run: Run) -> Results:
    """Make all measurements; timings last, when no judge is running."""
    round_trip = _round_trip(run)
    until_s = asyncio.get_running_loop().time() + run.minutes * 60
    async with open_speaker(run.checkpoint) as speaker:
        voices = _known(run.voices or speaker.voices)
        tasks = {voice: voice_tasks(voice, run.size, run.temperatures) for voice in voices}
        with JudgePool() as judges:
            for voice in {REFERENCE: None} | dict.fromkeys(voices):
                await _measure_source(voice, run, judges)
            if round_trip is not None:
                encoded = [task for voice in voices for task in codec_tasks(voice, run.size)]
                await perform("codec", encoded, round_trip, judges, run.measurements)
            # Voices alternate, so that a stopped run has as many measurements of each.
            in_turn = list(chain.from_iterable(zip(*tasks.values(), strict=True)))
            await perform(", ".join(voices), in_turn, from_voice(speaker), judges, run.measurements, until_s)
            checked = {voice: [task for task in own if not task.scored] for voice, own in tasks.items()}
            suspects = {voice: _suspects(own, run) for voice, own in checked.items()}
            for voice, own in suspects.items():
                readings = [Task(task.line, UtteranceKey(SOURCE, voice, task.key.spoken), False) for task in own]
                await _measure(f"source of {voice}", readings, run, judges)
        arrivals = await _arrivals(run, speaker, voices)
        own_word_times = await _own_word_times(run, speaker, voices)
    compared = {voice: _pairs([task for task in own if task.scored], run) for voice, own in tasks.items()}
    require_measured(compared, run.minutes)
    unsuspected = {
        voice: sum(task.key in run.measurements for task in own) - len(suspects[voice])
        for voice, own in checked.items()
    }
    return Results(
        temperatures=run.temperatures,
        size=run.size,
        size_mb=sum(path.stat().st_size for path in run.checkpoint.rglob("*.safetensors")) / 1e6,
        voices=_figures(compared, {voice: _pairs(own, run) for voice, own in suspects.items()}, unsuspected),
        sources={voice: source_figures(source_tasks(voice, run.size), run.source_measurements) for voice in voices},
        reference=None
        if REFERENCE in voices
        else source_figures(source_tasks(REFERENCE, run.size), run.source_measurements),
        speakers=speakers(compared) if len(compared) > 1 else {},
        codec={
            voice: (word_errors(decoded), opinion_scores(decoded))
            for voice in voices
            if (decoded := _pairs(codec_tasks(voice, run.size), run))
        },
        word_times=_word_times(run, round_trip),
        own_word_times=own_word_times,
        arrivals=arrivals,
        speed=speed.measure(run.checkpoint, voices[0]) if run.timings else None,
    )


async def sweep(run: Run, temperatures: Sequence[float]) -> list[SweepRow]:
    """Figures of all pairs of temperatures, then of each value over all values of the other temperature."""
    found: dict[tuple[float, float], list[Pair]] = {}
    async with open_speaker(run.checkpoint) as speaker:
        voices = _known(run.voices or speaker.voices)
        with JudgePool() as judges:
            for voice in voices:
                await _measure_source(voice, replace(run, size=SWEEP), judges)
            for pair in product(temperatures, temperatures):
                tasks = sweep_tasks(voices, pair)
                await perform(f"{pair[0]:g} / {pair[1]:g}", tasks, from_voice(speaker), judges, run.measurements)
                found[pair] = _pairs(tasks, run)
    rows = [SweepRow(*pair, figures(ALL, of)) for pair, of in found.items()]
    for value in temperatures:
        matching = [done for (talker, _), of in found.items() if talker == value for done in of]
        rows.append(SweepRow(value, None, figures(ALL, matching)))
    for value in temperatures:
        matching = [done for (_, predictor), of in found.items() if predictor == value for done in of]
        rows.append(SweepRow(None, value, figures(ALL, matching)))
    return rows


def require_measured(compared: Mapping[str, Sequence[Pair]], minutes: float) -> None:
    """Raises ValueError if a voice has no measurement, because the time was over before its first utterance."""
    if missing := [voice for voice, of in compared.items() if not of]:
        raise ValueError(
            f"no utterance of {', '.join(missing)} began within {minutes:g} minutes; run it again to continue"
        )


def _known(voices: Sequence[str]) -> list[str]:
    known = [voice for voice in voices if voice in sources.VOICES]
    if not known:
        raise OSError(f"none of the voices {', '.join(voices)} has a source ({', '.join(sources.VOICES)})")
    return known


async def _measure_source(voice: str, run: Run, judges: JudgePool) -> None:
    await _measure(f"source of {voice}", source_tasks(voice, run.size), run, judges)


async def _measure(name: str, readings: Sequence[Task], run: Run, judges: JudgePool) -> None:
    await perform(name, readings, from_source(run.sources), judges, run.source_measurements)


def _suspects(checked: Sequence[Task], run: Run) -> list[Task]:
    """Utterances that may have failed, of those that are made."""
    return [
        task
        for task in checked
        if (measurement := run.measurements.get(task.key)) is not None and suspicious(measurement)
    ]


def _pairs(tasks: Sequence[Task], run: Run) -> list[Pair]:
    return pairs(tasks, run.measurements, run.source_measurements)


def _word_times(run: Run, round_trip: RoundTrip | None) -> WordTimeFigures | None:
    if round_trip is None:
        return None
    from . import word_times

    return word_times.measure(run.checkpoint, round_trip.first_codes, run.sources.hibari, _WORD_TIMES_STRIDE)


async def _own_word_times(run: Run, speaker: Speaker, voices: Sequence[str]) -> WordTimeFigures | None:
    from . import word_times

    if word_times.VOICE not in voices:
        return None
    stride = _WORD_TIMES_STRIDE * run.size.stride
    return await word_times.measure_own(speaker, run.sampling, run.sources.hibari, stride)


def _round_trip(run: Run) -> RoundTrip | None:
    if run.encoder is None:
        return None
    from .codec import RoundTrip

    return RoundTrip(run.encoder, run.checkpoint, run.sources)


async def _arrivals(run: Run, speaker: Speaker, voices: Sequence[str]) -> list[ArrivalFigures]:
    if not run.timings:
        return []
    return await arrival.measure(speaker, voices, run.sampling, -(-_ARRIVALS // run.size.stride))


def _figures(
    of: Mapping[str, Sequence[Pair]], suspects: Mapping[str, Sequence[Pair]], unsuspected: Mapping[str, int]
) -> list[VoiceFigures]:
    rows = [figures(voice, own, suspects[voice], unsuspected[voice]) for voice, own in of.items() if own]
    if len(rows) > 1:
        every = list(chain.from_iterable(of.values())), list(chain.from_iterable(suspects.values()))
        rows.append(figures(ALL, *every, sum(unsuspected.values())))
    return rows
