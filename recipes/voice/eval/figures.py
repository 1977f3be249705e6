"""How much of what was to be said was heard: word errors, and words kept, by the cheapest alignment."""
# TODO-DOC The figures of a run, worked out of its takes: what each set of texts says of each voice, against its
# TODO-DOC source.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from . import texts
from .plan import Task
from .takes import SOURCE, Take, TakeKey, TakeLog
from .texts import words

_ALIKE = {"mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay", "pm": "p m"}
"""How the recogniser writes what the normaliser spells out."""


@dataclass(frozen=True, slots=True)
class Score:
    """`errors`: words wrong, missing or too many. `kept`: words of the text that were heard, in order."""

    words: int
    errors: int
    kept: int


def score(spoken: str, heard: str) -> Score:
    """Compare a text with what a recogniser heard, word by word (Levenshtein; of equal costs, the most words kept)."""
    expected, got = _folded(spoken), _folded(heard)
    # Cost first, then the kept words with a minus: the smaller pair is the better one.
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
    return [part for word in words(text) for part in _ALIKE.get(word, word).split()]


def ratio_interval(
    errors: Sequence[float], source_errors: Sequence[float], draws: int = 2000
) -> tuple[float, float, float]:
    """The ratio of two sums over the same texts, and where 95 % of such ratios lie when texts are drawn anew.

    (nan, nan, nan) without an error of the source: there is no ratio then.
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
NEAR = 0.1
FIRST_SOUND_S = 2 * FRAME_S


@dataclass(frozen=True, slots=True)
class Pair:
    """One take beside the source voice's reading of the same text."""

    group: str
    take: Take
    source: Take
    known: bool
    """All words are in the recogniser's dictionary."""

    @property
    def score(self) -> Score:
        return score(self.take.said.spoken, self.take.heard)

    @property
    def source_score(self) -> Score:
        return score(self.source.said.spoken, self.source.heard)

    @property
    def duration_ratio(self) -> float:
        return self.take.span_s / self.source.span_s

    @property
    def lost(self) -> bool:
        """More than half of the words that were heard of the source are not heard of the voice."""
        return self.score.kept < (1 - LOST_SHARE) * self.source_score.kept

    @property
    def failed(self) -> bool:
        return self.lost or not self.take.ended


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Shares of the words, and their ratio with the interval that holds 95 % of redrawn sets of texts."""

    texts: int
    words: int
    voice: float
    source: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class VoiceFigures:
    """`voice` is its name, or "all". Word errors by set, "numbers" for four of them, "everything" for all."""

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
    lead_ms_median: float
    lead_ms_p95: float
    lead_ms_most: float
    lead_near: float
    """Share of utterances whose first sound lies within two frames."""
    words_per_s: float
    source_words_per_s: float
    failed: list[str]
    """What was lost or did not end: text, and what was heard of it."""


def pairs(tasks: Iterable[Task], ledger: TakeLog, sources: TakeLog) -> list[Pair]:
    """Those of the tasks that were done, each with its source; `tasks` of voices, not of sources."""
    found = []
    for task in tasks:
        take = ledger.get(task.said)
        source = sources.get(TakeKey(SOURCE, task.said.voice, task.said.spoken))
        if take is not None and source is not None:
            found.append(Pair(task.line.group, take, source, bool(task.candidates)))
    return found


def figures(voice: str, of: Sequence[Pair]) -> VoiceFigures:
    """Of one voice's pairs, or of all of them together."""
    asked = [pair for pair in of if pair.take.chosen is not None]
    single = [pair for pair in of if pair.group != texts.PARAGRAPHS]
    ratios = np.array([pair.duration_ratio for pair in single])
    leads_ms = np.array([1000 * pair.take.lead_s for pair in of])
    # A source is read once for all seeds: each of its readings counts once.
    readings = {pair.source.said: pair.source for pair in asked}.values()
    return VoiceFigures(
        voice=voice,
        word_errors=_by_set(of),
        right_choice=fmean(bool(pair.take.chosen) for pair in asked) if asked else None,
        source_right_choice=fmean(bool(reading.chosen) for reading in readings) if readings else None,
        choices=len(asked),
        utterances=len(of),
        unended=sum(not pair.take.ended for pair in of),
        lost=sum(pair.lost for pair in of),
        duration_ratio=float(ratios.mean()),
        duration_spread=float(ratios.std()),
        duration_near=float(np.mean(np.abs(ratios - 1) <= NEAR)),
        paragraphs=len(of) - len(single),
        paragraph_ratios=[pair.duration_ratio for pair in of if pair.group == texts.PARAGRAPHS],
        lead_ms_median=float(np.median(leads_ms)),
        lead_ms_p95=float(np.percentile(leads_ms, 95)),
        lead_ms_most=float(leads_ms.max()),
        lead_near=float(np.mean(leads_ms <= 1000 * FIRST_SOUND_S)),
        words_per_s=_words_per_s([pair.take for pair in single]),
        source_words_per_s=_words_per_s([pair.source for pair in single]),
        failed=[
            f"{pair.take.said.voice}, seed {pair.take.said.seed}: {pair.take.said.spoken} | {pair.take.heard}"
            for pair in of
            if pair.failed
        ],
    )


def _by_set(of: Sequence[Pair]) -> dict[str, WordErrors]:
    chosen = {group: [pair for pair in of if pair.group == group] for group in texts.SETS}
    chosen["sentences of known words"] = [pair for pair in chosen[texts.SENTENCES] if pair.known]
    chosen["numbers"] = [pair for pair in of if pair.group in texts.NUMBERS]
    chosen["everything"] = list(of)
    return {name: word_errors(members) for name, members in chosen.items() if members}


def word_errors(of: Sequence[Pair]) -> WordErrors:
    """A text's errors are the mean over its seeds and voices: drawing texts anew then draws what belongs together."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, dict[TakeKey, float]] = {}
    words: dict[str, int] = {}
    for pair in of:
        spoken = pair.take.said.spoken
        ours.setdefault(spoken, []).append(pair.score.errors)
        theirs.setdefault(spoken, {})[pair.source.said] = pair.source_score.errors
        words[spoken] = pair.score.words
    errors = [fmean(ours[spoken]) for spoken in words]
    source_errors = [fmean(theirs[spoken].values()) for spoken in words]
    total = sum(words.values())
    ratio, low, high = ratio_interval(errors, source_errors)
    return WordErrors(len(words), total, sum(errors) / total, sum(source_errors) / total, ratio, low, high)


def source_word_errors(tasks: Iterable[Task], sources: TakeLog) -> dict[str, float]:
    """What the recogniser gets wrong of the source voice, by set."""
    counted: dict[str, list[Score]] = {}
    for task in tasks:
        if (take := sources.get(task.said)) is not None:
            counted.setdefault(task.line.group, []).append(score(take.said.spoken, take.heard))
    return {
        group: sum(one.errors for one in scores) / sum(one.words for one in scores) for group, scores in counted.items()
    }


def _words_per_s(of: Sequence[Take]) -> float:
    return sum(len(texts.words(take.said.spoken)) for take in of) / sum(take.span_s for take in of)
