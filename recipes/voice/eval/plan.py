"""The utterances of a run: texts, seeds, and for closed-set recognition the candidates of each text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import texts
from .measurements import CODEC, SOURCE, VOICE, UtteranceKey
from .texts import EvaluationText

CHOICES = 20
"""Candidates in closed-set recognition."""


@dataclass(frozen=True, slots=True)
class EvaluationSize:
    """Extent of a run: every `stride`-th line of each set, sentences with `seeds` seeds, other texts with one."""

    stride: int
    seeds: int
    paragraphs: int


FULL = EvaluationSize(stride=1, seeds=3, paragraphs=10)
QUICK = EvaluationSize(stride=5, seeds=1, paragraphs=1)
SWEEP = EvaluationSize(stride=10, seeds=1, paragraphs=0)
"""About 40 lines for each pair of temperatures; voices alternate."""


@dataclass(frozen=True, slots=True)
class Task:
    """One utterance to make and measure. `candidates`: the line's text first, then similar ones; may be empty."""

    line: EvaluationText
    key: UtteranceKey
    candidates: tuple[str, ...] = ()


def lines(size: EvaluationSize, groups: Sequence[str] = texts.SETS) -> list[EvaluationText]:
    """The lines of a run."""
    chosen: list[EvaluationText] = []
    for group in groups:
        of_group = texts.load(group)
        chosen += of_group[: size.paragraphs] if group == texts.PARAGRAPHS else of_group[:: size.stride]
    return chosen


def source_tasks(voice: str, size: EvaluationSize, candidates: Candidates) -> list[Task]:
    """All lines in a source voice."""
    return [Task(line, UtteranceKey(SOURCE, voice, line.spoken), candidates(line)) for line in lines(size)]


def codec_tasks(voice: str, size: EvaluationSize, candidates: Candidates) -> list[Task]:
    """The sentences through the codec."""
    return [
        Task(line, UtteranceKey(CODEC, voice, line.spoken), candidates(line)) for line in lines(size, [texts.SENTENCES])
    ]


def voice_tasks(
    voice: str, size: EvaluationSize, candidates: Candidates, temperatures: tuple[float, float]
) -> list[Task]:
    """All lines with the first seed, then the sentences with further seeds."""
    every = lines(size)
    return [
        Task(line, UtteranceKey(VOICE, voice, line.spoken, seed, *temperatures), candidates(line))
        for seed in range(size.seeds)
        for line in every
        if seed == 0 or line.group == texts.SENTENCES
    ]


def sweep_tasks(voices: Sequence[str], candidates: Candidates, temperatures: tuple[float, float]) -> list[Task]:
    """The lines of a sweep, the same lines in the same voices for every pair of temperatures."""
    of_voices = [voice_tasks(voice, SWEEP, candidates, temperatures) for voice in voices]
    return [tasks[number % len(voices)] for number, tasks in enumerate(zip(*of_voices, strict=True))]


Candidates = Callable[[EvaluationText], tuple[str, ...]]
"""Gives the candidates of a line."""


class NearestInLength:
    """`Candidates`: a sentence and those nearest in length; none for texts with words unknown to the recogniser."""

    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._pool = [line.spoken for line in texts.load(texts.SENTENCES) if knows(line.spoken)]

    def __call__(self, line: EvaluationText) -> tuple[str, ...]:
        if line.spoken not in self._pool:
            return ()
        others = (other for other in self._pool if other != line.spoken)
        near = sorted(others, key=lambda other: (abs(len(other) - len(line.spoken)), other))
        return (line.spoken, *near[: CHOICES - 1])
