"""Figures of a run: word errors, opinion scores, failures and durations, each compared with the source voice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from . import plan as texts
from .measurements import SOURCE, Measurement, MeasurementLog, UtteranceKey
from .plan import Task
from .scoring import Score, score


def share_interval(counts: Sequence[float], totals: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of sum(counts) / sum(totals), by bootstrap over texts."""
    top, bottom = np.asarray(counts, float), np.asarray(totals, float)
    picks = np.random.default_rng(0).integers(len(top), size=(draws, len(top)))
    low, high = np.percentile(top[picks].sum(1) / bottom[picks].sum(1), [2.5, 97.5])
    return float(low), float(high)


FRAME_S = 0.08
LOST_SHARE = 0.5
"""Share of the words recognised from the source whose loss is a failure."""
NEAR = 0.1
"""Relative difference of durations that counts as near."""
FIRST_SOUND_S = 2 * FRAME_S
"""Silence before the first sound that is acceptable."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A measurement, and that of the source voice's reading of the same text."""

    group: str
    measurement: Measurement
    source: Measurement

    @property
    def score(self) -> Score:
        """Word errors of the voice."""
        return score(self.measurement.key.spoken, self.measurement.transcript)

    @property
    def source_score(self) -> Score:
        """Word errors of the source."""
        return score(self.source.key.spoken, self.source.transcript)

    @property
    def duration_ratio(self) -> float:
        """Duration of the speech relative to the source's."""
        return self.measurement.speech_s / self.source.speech_s

    @property
    def lost(self) -> bool:
        """Whether less than half as many words were recognised as of the source."""
        return self.score.kept < (1 - LOST_SHARE) * self.source_score.kept

    @property
    def failed(self) -> bool:
        """Whether the utterance lost words or did not end by itself."""
        return self.lost or not self.measurement.ended


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Word error rates of the voice, with its 95 % interval, and of the source."""

    texts: int
    words: int
    voice: float
    low: float
    high: float
    source: float


@dataclass(frozen=True, slots=True)
class MosFigures:
    """Mean predicted opinion score of the voice and the source, and the voice's 5th percentile over utterances."""

    voice: float
    worst: float
    source: float


@dataclass(frozen=True, slots=True)
class VoiceFigures:
    """Figures of a voice, or of "all". Word errors are by set, of all numbers ("numbers"), and of "everything"."""

    voice: str
    word_errors: dict[str, WordErrors]
    mos: dict[str, MosFigures]
    """By set, and of "everything"."""
    utterances: int
    unended: int
    lost: int
    duration_ratio: float
    duration_spread: float
    duration_near: float
    """Share of sentences within 10 % of the source's duration."""
    paragraphs: int
    paragraph_ratios: list[float]
    leading_silence_ms_median: float
    leading_silence_ms_p95: float
    leading_silence_ms_max: float
    first_sound_near: float
    """Share of utterances whose first sound comes within two frames."""
    words_per_s: float
    source_words_per_s: float
    failed: list[str]
    """Failed utterances with their transcripts."""


def pairs(tasks: Iterable[Task], log: MeasurementLog, sources: MeasurementLog) -> list[Pair]:
    """Measurements of the tasks that are complete, each with that of its source."""
    found = []
    for task in tasks:
        measurement = log.get(task.key)
        source = sources.get(UtteranceKey(SOURCE, task.key.voice, task.key.spoken))
        if measurement is not None and source is not None:
            found.append(Pair(task.line.group, measurement, source))
    return found


def figures(voice: str, of: Sequence[Pair]) -> VoiceFigures:
    """Figures of the given pairs."""
    single = [pair for pair in of if pair.group != texts.PARAGRAPHS]
    ratios = np.array([pair.duration_ratio for pair in single])
    leading_silences_ms = np.array([1000 * pair.measurement.leading_silence_s for pair in of])
    return VoiceFigures(
        voice=voice,
        word_errors={name: word_errors(members) for name, members in _sets(of).items()},
        mos={name: opinion_scores(members) for name, members in _sets(of).items()},
        utterances=len(of),
        unended=sum(not pair.measurement.ended for pair in of),
        lost=sum(pair.lost for pair in of),
        duration_ratio=float(ratios.mean()),
        duration_spread=float(ratios.std()),
        duration_near=float(np.mean(np.abs(ratios - 1) <= NEAR)),
        paragraphs=len(of) - len(single),
        paragraph_ratios=[pair.duration_ratio for pair in of if pair.group == texts.PARAGRAPHS],
        leading_silence_ms_median=float(np.median(leading_silences_ms)),
        leading_silence_ms_p95=float(np.percentile(leading_silences_ms, 95)),
        leading_silence_ms_max=float(leading_silences_ms.max()),
        first_sound_near=float(np.mean(leading_silences_ms <= 1000 * FIRST_SOUND_S)),
        words_per_s=_words_per_s([pair.measurement for pair in single]),
        source_words_per_s=_words_per_s([pair.source for pair in single]),
        failed=[
            f"{key.voice}, seed {key.seed}: {key.spoken} | {pair.measurement.transcript}"
            for pair in of
            if pair.failed and (key := pair.measurement.key)
        ],
    )


def _sets(of: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The pairs of each set, of all numbers, and all; sets without pairs are left out."""
    chosen = {group: [pair for pair in of if pair.group == group] for group in texts.SETS}
    chosen["numbers"] = [pair for pair in of if pair.group in texts.NUMBERS]
    chosen["everything"] = list(of)
    return {name: members for name, members in chosen.items() if members}


def opinion_scores(of: Sequence[Pair]) -> MosFigures:
    """Opinion scores of voice and source."""
    scores = [pair.measurement.mos for pair in of]
    readings = {pair.source.key: pair.source.mos for pair in of}  # one reading serves all seeds
    return MosFigures(fmean(scores), float(np.percentile(scores, 5)), fmean(readings.values()))


def word_errors(of: Sequence[Pair]) -> WordErrors:
    """Word error rates; each text counts with the mean over its seeds and voices, since the bootstrap draws texts."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, dict[UtteranceKey, float]] = {}
    words: dict[str, int] = {}
    for pair in of:
        spoken = pair.measurement.key.spoken
        ours.setdefault(spoken, []).append(pair.score.errors)
        theirs.setdefault(spoken, {})[pair.source.key] = pair.source_score.errors
        words[spoken] = pair.score.words
    errors = [fmean(ours[spoken]) for spoken in words]
    source_errors = [fmean(theirs[spoken].values()) for spoken in words]
    counts = list(words.values())
    low, high = share_interval(errors, counts)
    total = sum(counts)
    return WordErrors(len(words), total, sum(errors) / total, low, high, sum(source_errors) / total)


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """Word error rates and opinion scores of a source voice by set."""

    word_errors: dict[str, float]
    mos: dict[str, float]


def source_figures(tasks: Iterable[Task], sources: MeasurementLog) -> SourceFigures:
    """Figures of the source voice."""
    counted: dict[str, list[tuple[Score, float]]] = {}
    for task in tasks:
        if (measurement := sources.get(task.key)) is not None:
            one = score(measurement.key.spoken, measurement.transcript)
            counted.setdefault(task.line.group, []).append((one, measurement.mos))
    return SourceFigures(
        {
            group: sum(one.errors for one, _ in found) / sum(one.words for one, _ in found)
            for group, found in counted.items()
        },
        {group: fmean(mos for _, mos in found) for group, found in counted.items()},
    )


def _words_per_s(of: Sequence[Measurement]) -> float:
    return sum(len(texts.words(measurement.key.spoken)) for measurement in of) / sum(
        measurement.speech_s for measurement in of
    )
