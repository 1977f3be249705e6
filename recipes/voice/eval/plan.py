"""What is to be said in a run: which texts, how often, and among which others each is to be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import texts
from .takes import CODEC, SOURCE, VOICE, TakeKey
from .texts import EvaluationText

CHOICES = 20


@dataclass(frozen=True, slots=True)
class EvaluationSize:
    """How much is said: every `stride`-th line of each set, the sentences with `seeds` seeds and the rest with one."""

    stride: int
    seeds: int
    paragraphs: int


FULL = EvaluationSize(stride=1, seeds=3, paragraphs=10)
QUICK = EvaluationSize(stride=5, seeds=1, paragraphs=1)
SWEEP = EvaluationSize(stride=10, seeds=1, paragraphs=0)
"""For each pair of temperatures, about 40 lines, their voices in turn."""


@dataclass(frozen=True, slots=True)
class Task:
    """One utterance to be made of a line. `candidates`: the line's own text first, then those it may be taken for."""

    line: EvaluationText
    said: TakeKey
    candidates: tuple[str, ...] = ()


def lines(extent: EvaluationSize, groups: Sequence[str] = texts.SETS) -> list[EvaluationText]:
    chosen: list[EvaluationText] = []
    for group in groups:
        of_group = texts.load(group)
        chosen += of_group[: extent.paragraphs] if group == texts.PARAGRAPHS else of_group[:: extent.stride]
    return chosen


def source_tasks(voice: str, extent: EvaluationSize, candidates: Candidates) -> list[Task]:
    return [Task(line, TakeKey(SOURCE, voice, line.spoken), candidates(line)) for line in lines(extent)]


def codec_tasks(voice: str, extent: EvaluationSize, candidates: Candidates) -> list[Task]:
    """The sentences alone."""
    return [
        Task(line, TakeKey(CODEC, voice, line.spoken), candidates(line)) for line in lines(extent, [texts.SENTENCES])
    ]


def voice_tasks(
    voice: str, extent: EvaluationSize, candidates: Candidates, temperatures: tuple[float, float]
) -> list[Task]:
    """First everything with the first seed, then the sentences with the others."""
    every = lines(extent)
    return [
        Task(line, TakeKey(VOICE, voice, line.spoken, seed, *temperatures), candidates(line))
        for seed in range(extent.seeds)
        for line in every
        if seed == 0 or line.group == texts.SENTENCES
    ]


def sweep_tasks(voices: Sequence[str], candidates: Candidates, temperatures: tuple[float, float]) -> list[Task]:
    """Every pair of temperatures says the same lines in the same voices, so that their differences are its own."""
    of_voices = [voice_tasks(voice, SWEEP, candidates, temperatures) for voice in voices]
    return [tasks[number % len(voices)] for number, tasks in enumerate(zip(*of_voices, strict=True))]


Candidates = Callable[[EvaluationText], tuple[str, ...]]


class NearestInLength:
    """For a sentence of known words: itself and the others nearest in length; nothing for what has no such choice."""

    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._pool = [line.spoken for line in texts.load(texts.SENTENCES) if knows(line.spoken)]

    def __call__(self, line: EvaluationText) -> tuple[str, ...]:
        if line.spoken not in self._pool:
            return ()
        others = (other for other in self._pool if other != line.spoken)
        near = sorted(others, key=lambda other: (abs(len(other) - len(line.spoken)), other))
        return (line.spoken, *near[: CHOICES - 1])
