"""The plan of an evaluation: texts as written and in their spoken form, utterances and their seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voxgate.pipeline.text.source_map import SourceMappedText
from voxgate.pipeline.text.spoken_form import SpokenForm

from .measurements import CODEC, SOURCE, VOICE, UtteranceKey

FOLDER = Path(__file__).parent / "prompts"
SENTENCES = "sentences"
NUMBERS = ("digits", "times", "dates", "money")
NAMES = "names"
TALK = ("questions", "lists", "spelled", "addresses", "talk")
PARAGRAPHS = "paragraphs"
SETS = (SENTENCES, *NUMBERS, NAMES, *TALK, PARAGRAPHS)


@dataclass(frozen=True, slots=True)
class EvaluationText:
    """`written`: the text given to the voice. `spoken`: its spoken form, in lower case with punctuation."""

    group: str
    written: str
    spoken: str

    @property
    def words(self) -> list[str]:
        """The words of the spoken form."""
        return words(self.spoken)


def load(group: str, folder: Path = FOLDER) -> list[EvaluationText]:
    """All texts of a set in order; the lines of a paragraph are joined."""
    text = (folder / f"{group}.txt").read_text("utf-8")
    rows = [row.strip() for row in text.splitlines() if not row.startswith("#")]
    if group == PARAGRAPHS:
        rows = ["\n".join(rows).strip().replace("\n\n", "\f")]
        rows = [paragraph.strip().replace("\n", " ") for paragraph in rows[0].split("\f")]
    return [EvaluationText(group, row, spoken(row)) for row in rows if row]


def spoken(written: str) -> str:
    """The spoken form, as the gateway gives it to the voice's tokenizer."""
    form = SpokenForm()
    spoken_form = form.push(SourceMappedText(written, tuple(range(1, len(written) + 1)))).text + form.flush().text
    return spoken_form.strip()


def words(text: str) -> list[str]:
    """The words of a text: letters and apostrophes, in lower case."""
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


@dataclass(frozen=True, slots=True)
class EvaluationSize:
    """Extent of a run.

    Every `scored`-th line of each set and `paragraphs` are measured and compared with the source, sentences with
    `seeds` seeds. Of the others every `stride`-th line, if any, is spoken once and checked for failures only.
    """

    stride: int
    scored: int
    seeds: int
    paragraphs: int


FULL = EvaluationSize(stride=1, scored=1, seeds=3, paragraphs=10)
WIDE = EvaluationSize(stride=1, scored=5, seeds=3, paragraphs=2)
QUICK = EvaluationSize(stride=5, scored=5, seeds=3, paragraphs=2)
SWEEP = EvaluationSize(stride=10, scored=10, seeds=1, paragraphs=0)
"""About 40 lines for each pair of temperatures; voices alternate."""


@dataclass(frozen=True, slots=True)
class Task:
    """One utterance to make and measure. `scored`: with its opinion score and compared with the source."""

    line: EvaluationText
    key: UtteranceKey
    scored: bool = True


def lines(size: EvaluationSize, groups: Sequence[str] = SETS) -> list[tuple[EvaluationText, bool]]:
    """The lines of a run, and whether they are scored; those that are scored come first."""
    chosen: list[tuple[EvaluationText, bool]] = []
    for group in groups:
        of_group = load(group)
        if group == PARAGRAPHS:
            chosen += [(line, True) for line in of_group[: size.paragraphs]]
        else:
            chosen += [(line, at % size.scored == 0) for at, line in enumerate(of_group) if at % size.stride == 0]
    return sorted(chosen, key=lambda one: not one[1])


def source_tasks(voice: str, size: EvaluationSize) -> list[Task]:
    """The scored lines in a source voice."""
    return [Task(line, UtteranceKey(SOURCE, voice, line.spoken)) for line, scored in lines(size) if scored]


def codec_tasks(voice: str, size: EvaluationSize) -> list[Task]:
    """The scored sentences through the codec."""
    return [Task(line, UtteranceKey(CODEC, voice, line.spoken)) for line, scored in lines(size, [SENTENCES]) if scored]


def voice_tasks(voice: str, size: EvaluationSize, temperatures: tuple[float, float]) -> list[Task]:
    """The scored lines with the first seed, then the sentences of them with further seeds, then the other lines."""
    every = lines(size)
    chosen = [(line, 0, True) for line, scored in every if scored]
    chosen += [
        (line, seed, True)
        for seed in range(1, size.seeds)
        for line, scored in every
        if scored and line.group == SENTENCES
    ]
    chosen += [(line, 0, False) for line, scored in every if not scored]
    return [
        Task(line, UtteranceKey(VOICE, voice, line.spoken, seed, *temperatures), scored)
        for line, seed, scored in chosen
    ]


def sweep_tasks(voices: Sequence[str], temperatures: tuple[float, float]) -> list[Task]:
    """The lines of a sweep, the same lines in the same voices for every pair of temperatures."""
    of_voices = [voice_tasks(voice, SWEEP, temperatures) for voice in voices]
    return [tasks[number % len(voices)] for number, tasks in enumerate(zip(*of_voices, strict=True))]
