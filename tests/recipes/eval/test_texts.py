"""The evaluation texts: number of each kind, no duplicates, and spoken forms."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from eval import texts


@pytest.mark.parametrize(
    ("group", "least"), [("sentences", 200), *((group, 30) for group in (*texts.NUMBERS, "names"))]
)
def test_every_set_has_enough_texts(group: str, least: int) -> None:
    assert len(texts.load(group)) >= least


def test_paragraphs_have_ten_sentences() -> None:
    paragraphs = texts.load(texts.PARAGRAPHS)
    assert len(paragraphs) >= 10
    assert {sum(map(paragraph.spoken.count, ".?!")) for paragraph in paragraphs} == {10}


def test_no_text_occurs_twice() -> None:
    spoken = [line.spoken for line in chain.from_iterable(map(texts.load, texts.SETS))]
    assert len(set(spoken)) == len(spoken)


def test_numbers_are_written_in_digits() -> None:
    for line in chain.from_iterable(map(texts.load, texts.NUMBERS)):
        assert any(map(str.isdigit, line.written)), line.written
        assert line.spoken[-1] in ".?!"
        assert set(line.spoken) <= set("abcdefghijklmnopqrstuvwxyz' ,;:.?!"), line.spoken


def test_comments_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "digits.txt").write_text("# of numbers\n\nIt is 5.\n\n# more\nIt is 6.\n")
    assert [line.spoken for line in texts.load("digits", tmp_path)] == ["it is five.", "it is six."]


def test_blank_line_ends_paragraph(tmp_path: Path) -> None:
    (tmp_path / "paragraphs.txt").write_text("# of two\n\nOne.\nTwo.\n\nThree.\n")
    assert [line.written for line in texts.load(texts.PARAGRAPHS, tmp_path)] == ["One. Two.", "Three."]
