"""Figures of a run: word errors by Levenshtein alignment, failures, durations, each compared with the source voice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from . import plan as texts
from .measurements import SOURCE, Measurement, MeasurementLog, UtteranceKey
from .plan import Task, words

_SPELLED_OUT = {"mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay", "pm": "p m"}
"""Abbreviations that the recogniser writes, and the spoken form spells out."""


@dataclass(frozen=True, slots=True)
class Score:
    """`errors`: substitutions, deletions and insertions. `kept`: words of the text that were recognised, in order."""

    words: int
    errors: int
    kept: int


def score(spoken: str, transcript: str) -> Score:
    """Align a text with a transcript word by word: fewest errors, then most words kept."""
    expected, got = _folded(spoken), _folded(transcript)
    # Pairs of cost and negative number of kept words: the smaller pair is better.
    row = [(n, 0) for n in range(len(got) + 1)]
    for i, want in enumerate(expected, 1):
        above, row = row, [(i, 0)]
        for j, word in enumerate(got, 1):
            same = want == word
            row.append(
                min(
                    (above[j - 1][0] + (not same), above[j - 1][1] - same),
                    (above[j][0] + 1, above[j][1]),
                    (row[j - 1][0] + 1, row[j - 1][1]),
                )
            )
    errors, kept = row[-1]
    return Score(len(expected), errors, -kept)


def _folded(text: str) -> list[str]:
    return [part for word in words(text) for part in _SPELLED_OUT.get(word, word).split()]


def ratio_interval(
    errors: Sequence[float], source_errors: Sequence[float], draws: int = 2000
) -> tuple[float, float, float]:
    """Ratio of two sums over the same texts, with its 95 % interval by bootstrap over texts.

    (nan, nan, nan) if the source has no errors.
    """
    top, bottom = np.asarray(errors, float), np.asarray(source_errors, float)
    if not bottom.sum():
        return (float("nan"),) * 3
    picks = np.random.default_rng(0).integers(len(top), size=(draws, len(top)))
    below = bottom[picks].sum(1)
    ratios = top[picks].sum(1)[below > 0] / below[below > 0]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(top.sum() / bottom.sum()), float(low), float(high)


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
    known: bool
    """Whether all words are in the recogniser's dictionary."""

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
    """Word error rates of voice and source, and their ratio with its 95 % interval."""

    texts: int
    words: int
    voice: float
    source: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class VoiceFigures:
    """Figures of a voice, or of "all". Word errors are by set, of all numbers ("numbers"), and of "everything"."""

    voice: str
    word_errors: dict[str, WordErrors]
    right_choice: float | None
    source_right_choice: float | None
    choices: int
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
            found.append(Pair(task.line.group, measurement, source, bool(task.candidates)))
    return found


def figures(voice: str, of: Sequence[Pair]) -> VoiceFigures:
    """Figures of the given pairs."""
    asked = [pair for pair in of if pair.measurement.chosen is not None]
    single = [pair for pair in of if pair.group != texts.PARAGRAPHS]
    ratios = np.array([pair.duration_ratio for pair in single])
    leading_silences_ms = np.array([1000 * pair.measurement.leading_silence_s for pair in of])
    # One reading of the source serves all seeds, and counts once.
    readings = {pair.source.key: pair.source for pair in asked}.values()
    return VoiceFigures(
        voice=voice,
        word_errors=_by_set(of),
        right_choice=fmean(bool(pair.measurement.chosen) for pair in asked) if asked else None,
        source_right_choice=fmean(bool(reading.chosen) for reading in readings) if readings else None,
        choices=len(asked),
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


def _by_set(of: Sequence[Pair]) -> dict[str, WordErrors]:
    chosen = {group: [pair for pair in of if pair.group == group] for group in texts.SETS}
    chosen["sentences of known words"] = [pair for pair in chosen[texts.SENTENCES] if pair.known]
    chosen["numbers"] = [pair for pair in of if pair.group in texts.NUMBERS]
    chosen["everything"] = list(of)
    return {name: word_errors(members) for name, members in chosen.items() if members}


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
    total = sum(words.values())
    ratio, low, high = ratio_interval(errors, source_errors)
    return WordErrors(len(words), total, sum(errors) / total, sum(source_errors) / total, ratio, low, high)


def source_word_errors(tasks: Iterable[Task], sources: MeasurementLog) -> dict[str, float]:
    """Word error rates of the source voice by set."""
    counted: dict[str, list[Score]] = {}
    for task in tasks:
        if (measurement := sources.get(task.key)) is not None:
            counted.setdefault(task.line.group, []).append(score(measurement.key.spoken, measurement.transcript))
    return {
        group: sum(one.errors for one in scores) / sum(one.words for one in scores) for group, scores in counted.items()
    }


def _words_per_s(of: Sequence[Measurement]) -> float:
    return sum(len(texts.words(measurement.key.spoken)) for measurement in of) / sum(
        measurement.speech_s for measurement in of
    )
