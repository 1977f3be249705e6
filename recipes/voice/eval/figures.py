"""Figures of a run: word errors, opinion scores, failures and durations, each compared with the source voice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from . import plan as texts
from .judging.scoring import Score, said_twice, score
from .measurements import SOURCE, Measurement, MeasurementLog, UtteranceKey
from .plan import Task


def share_interval(counts: Sequence[float], totals: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of sum(counts) / sum(totals), by bootstrap over texts."""
    top, bottom = np.asarray(counts, float), np.asarray(totals, float)
    picks = np.random.default_rng(0).integers(len(top), size=(draws, len(top)))
    low, high = np.percentile(top[picks].sum(1) / bottom[picks].sum(1), [2.5, 97.5])
    return float(low), float(high)


EVERYTHING = "everything"
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
    def said_twice(self) -> tuple[str, ...]:
        """Words that were recognised twice in a row, but are not so in the text, nor were in the source's reading."""
        spoken = self.source.key.spoken
        of_source = said_twice(spoken, self.source.transcript)
        return tuple(words for words in said_twice(spoken, self.measurement.transcript) if words not in of_source)

    @property
    def failed(self) -> bool:
        """Whether the utterance lost or repeated words, or did not end by itself."""
        return self.lost or bool(self.said_twice) or not self.measurement.ended


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

    utterances: int
    voice: float
    worst: float
    source: float


@dataclass(frozen=True, slots=True)
class LongTextFigures:
    """Figures of the paragraphs, each of the voice and of the source.

    Changes from the first to the last third: the level in dB, mean of its absolute values and the greatest, and the
    lowest similarity of the speaker.
    """

    paragraphs: int
    drift_db: float
    most_drift_db: float
    source_drift_db: float
    source_most_drift_db: float
    speaker_kept: float
    source_speaker_kept: float


@dataclass(frozen=True, slots=True)
class SpeakerFigures:
    """Mean cosines of utterances with the mean of the source's readings of the scored texts.

    `voice`, `source`: of the voice's utterances and of the source's own. `other`: of the voice's utterances with the
    source of another voice, the most similar one; None with a single voice. `right`: share of utterances that are most
    similar to their own source.
    """

    voice: float
    source: float
    other: float | None
    right: float


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
    said_twice: int
    duration_ratio: float
    duration_spread: float
    duration_near: float
    """Share of sentences within 10 % of the source's duration."""
    paragraphs: int
    paragraph_ratios: list[float]
    long: LongTextFigures | None
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


def suspicious(measurement: Measurement) -> bool:
    """Whether an utterance may have failed, which the source's reading of its text decides."""
    spoken = measurement.key.spoken
    one = score(spoken, measurement.transcript)
    lost = one.kept < (1 - LOST_SHARE) * one.words
    return lost or not measurement.ended or bool(said_twice(spoken, measurement.transcript))


def figures(voice: str, of: Sequence[Pair], suspects: Sequence[Pair] = (), unsuspected: int = 0) -> VoiceFigures:
    """Figures of the given pairs.

    `suspects`: the suspicious ones of those utterances that were only checked for failures; `unsuspected`: number of
    the others.
    """
    every = [*of, *suspects]
    single = [pair for pair in of if pair.group != texts.PARAGRAPHS]
    ratios = np.array([pair.duration_ratio for pair in single])
    leading_silences_ms = np.array([1000 * pair.measurement.leading_silence_s for pair in of])
    return VoiceFigures(
        voice=voice,
        word_errors={name: word_errors(members) for name, members in _sets(of).items()},
        mos={name: scores for name, members in _sets(of).items() if (scores := opinion_scores(members))},
        utterances=len(every) + unsuspected,
        unended=sum(not pair.measurement.ended for pair in every),
        lost=sum(pair.lost for pair in every),
        said_twice=sum(bool(pair.said_twice) for pair in every),
        duration_ratio=float(ratios.mean()),
        duration_spread=float(ratios.std()),
        duration_near=float(np.mean(np.abs(ratios - 1) <= NEAR)),
        paragraphs=len(of) - len(single),
        paragraph_ratios=[pair.duration_ratio for pair in of if pair.group == texts.PARAGRAPHS],
        long=_long([pair for pair in of if pair.group == texts.PARAGRAPHS]),
        leading_silence_ms_median=float(np.median(leading_silences_ms)),
        leading_silence_ms_p95=float(np.percentile(leading_silences_ms, 95)),
        leading_silence_ms_max=float(leading_silences_ms.max()),
        first_sound_near=float(np.mean(leading_silences_ms <= 1000 * FIRST_SOUND_S)),
        words_per_s=_words_per_s([pair.measurement for pair in single]),
        source_words_per_s=_words_per_s([pair.source for pair in single]),
        failed=[
            f"{key.voice}, seed {key.seed}: {key.spoken} | {pair.measurement.transcript}"
            for pair in every
            if pair.failed and (key := pair.measurement.key)
        ],
    )


def _sets(of: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The pairs of each set, of all numbers, and all; sets without pairs are left out."""
    chosen = {group: [pair for pair in of if pair.group == group] for group in texts.SETS}
    chosen["numbers"] = [pair for pair in of if pair.group in texts.NUMBERS]
    chosen[EVERYTHING] = list(of)
    return {name: members for name, members in chosen.items() if members}


def opinion_scores(of: Sequence[Pair]) -> MosFigures | None:
    """Opinion scores of voice and source, of those that were scored."""
    scores = [pair.measurement.mos for pair in of if pair.measurement.mos is not None]
    # One reading serves all seeds.
    readings = {pair.source.key: pair.source.mos for pair in of if pair.source.mos is not None}
    if not scores or not readings:
        return None
    return MosFigures(len(scores), fmean(scores), float(np.percentile(scores, 5)), fmean(readings.values()))


def _long(of: Sequence[Pair]) -> LongTextFigures | None:
    """Figures of paragraphs that are long enough, all of them heard."""
    sides = [[pair.measurement for pair in of], [pair.source for pair in of]]
    drifts = [np.abs([one.drift_db for one in side if one.drift_db is not None]) for side in sides]
    kept = [[one.speaker_kept for one in side if one.speaker_kept is not None] for side in sides]
    if not all(side.size for side in drifts) or not all(kept):
        return None
    (voice, source), (voice_kept, source_kept) = drifts, kept
    return LongTextFigures(
        paragraphs=len(of),
        drift_db=float(voice.mean()),
        most_drift_db=float(voice.max()),
        source_drift_db=float(source.mean()),
        source_most_drift_db=float(source.max()),
        speaker_kept=min(voice_kept),
        source_speaker_kept=min(source_kept),
    )


def speakers(of: Mapping[str, Sequence[Pair]]) -> dict[str, SpeakerFigures]:
    """Similarity of the speakers of the voices."""
    pairs = {
        voice: heard
        for voice, own in of.items()
        if (heard := [pair for pair in own if pair.measurement.speaker and pair.source.speaker])
    }
    readings = {
        voice: np.array(list({pair.source.key: pair.source.speaker for pair in own}.values()))
        for voice, own in pairs.items()
    }
    means = {voice: one.mean(0) / np.linalg.norm(one.mean(0)) for voice, one in readings.items()}
    found = {}
    for number, (voice, own) in enumerate(pairs.items()):
        cosines = np.array([pair.measurement.speaker for pair in own]) @ np.array(list(means.values())).T
        others = np.delete(cosines.mean(0), number)
        found[voice] = SpeakerFigures(
            voice=float(cosines[:, number].mean()),
            source=float((readings[voice] @ means[voice]).mean()),
            other=float(others.max()) if len(others) else None,
            right=float(np.mean(cosines.argmax(1) == number)),
        )
    return found


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
    """Word error rates and opinion scores of a source voice by set, and of "everything"."""

    word_errors: dict[str, float]
    mos: dict[str, float]


def source_figures(tasks: Iterable[Task], sources: MeasurementLog) -> SourceFigures:
    """Figures of the source voice."""
    counted: dict[str, list[tuple[Score, float | None]]] = {}
    for task in tasks:
        if (measurement := sources.get(task.key)) is not None:
            one = score(measurement.key.spoken, measurement.transcript)
            for name in (task.line.group, EVERYTHING):
                counted.setdefault(name, []).append((one, measurement.mos))
    return SourceFigures(
        {
            group: sum(one.errors for one, _ in found) / sum(one.words for one, _ in found)
            for group, found in counted.items()
        },
        {
            group: fmean(scores)
            for group, found in counted.items()
            if (scores := [mos for _, mos in found if mos is not None])
        },
    )


def _words_per_s(of: Sequence[Measurement]) -> float:
    return sum(len(texts.words(measurement.key.spoken)) for measurement in of) / sum(
        measurement.speech_s for measurement in of
    )
