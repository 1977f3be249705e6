"""The evaluation texts, as written and in their spoken form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from voxgate.pipeline.text.source_map import SourceMappedText
from voxgate.pipeline.text.spoken_form import SpokenForm

FOLDER = Path(__file__).parent / "prompts"
SENTENCES = "sentences"
NUMBERS = ("digits", "times", "dates", "money")
NAMES = "names"
PARAGRAPHS = "paragraphs"
SETS = (SENTENCES, *NUMBERS, NAMES, PARAGRAPHS)


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
