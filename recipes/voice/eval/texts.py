"""The held-out texts, as people write them and as the project's own normaliser has them said."""

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
    """`written`: what goes to the voice. `spoken`: what is to be heard, in lower case and with its marks."""

    group: str
    written: str
    spoken: str

    @property
    def words(self) -> list[str]:
        return words(self.spoken)


def load(group: str, folder: Path = FOLDER) -> list[EvaluationText]:
    """All of one set, in order; a paragraph is one line, its sentences joined."""
    text = (folder / f"{group}.txt").read_text("utf-8")
    rows = [row.strip() for row in text.splitlines() if not row.startswith("#")]
    if group == PARAGRAPHS:
        rows = ["\n".join(rows).strip().replace("\n\n", "\f")]
        rows = [paragraph.strip().replace("\n", " ") for paragraph in rows[0].split("\f")]
    return [EvaluationText(group, row, spoken(row)) for row in rows if row]


def spoken(written: str) -> str:
    """Numbers and symbols in words, as the voice's own pipeline hands them to its tokenizer."""
    form = SpokenForm()
    said = form.push(SourceMappedText(written, tuple(range(1, len(written) + 1)))).text + form.flush().text
    return said.strip()


def words(text: str) -> list[str]:
    """The words alone: letters and apostrophes, in lower case."""
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()
