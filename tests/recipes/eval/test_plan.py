"""Evaluation texts and the utterances made of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from eval import plan as texts
from eval.plan import FULL, QUICK, WIDE, source_tasks, sweep_tasks, voice_tasks


@pytest.mark.parametrize(
    ("group", "least"), [("sentences", 200), *((group, 30) for group in (*texts.NUMBERS, *texts.TALK, "names"))]
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


def test_full_run_has_enough_utterances() -> None:
    counts = Counter(task.line.group for task in voice_tasks("heart", FULL, (0.6, 0.6)))
    assert counts[texts.SENTENCES] >= 600
    assert all(counts[group] >= 30 for group in (*texts.NUMBERS, *texts.TALK, texts.NAMES))
    assert counts[texts.PARAGRAPHS] >= 10


def test_utterances_are_distinct() -> None:
    tasks = voice_tasks("heart", FULL, (0.6, 0.6))
    assert len({task.key for task in tasks}) == len(tasks)


def test_quick_run_is_part_of_full_run() -> None:
    # So a full run reuses the measurements of a quick one.
    full, wide, quick = ({task.key for task in voice_tasks("heart", size, (0.6, 0.6))} for size in (FULL, WIDE, QUICK))
    assert quick < wide < full
    assert len(quick) < len(full) / 4


def test_wide_run_has_2000_utterances_and_scores_those_of_a_quick_one() -> None:
    wide, quick = (voice_tasks("heart", size, (0.6, 0.6)) for size in (WIDE, QUICK))
    assert 4 * len(wide) >= 2000
    assert wide[: len(quick)] == quick
    assert all(task.scored for task in quick)
    assert not any(task.scored for task in wide[len(quick) :])
    assert source_tasks("heart", WIDE) == source_tasks("heart", QUICK)


def test_every_text_has_a_source_task() -> None:
    sources = {task.key.spoken for task in source_tasks("heart", QUICK)}
    assert {task.key.spoken for task in voice_tasks("heart", QUICK, (0.6, 0.6))} == sources


def test_sweep_has_same_lines_and_voices_for_all_temperatures() -> None:
    cold, hot = (sweep_tasks(["heart", "michael"], (value, value)) for value in (0.3, 0.8))
    assert [(task.line, task.key.voice) for task in cold] == [(task.line, task.key.voice) for task in hot]
    counts = Counter(task.key.voice for task in cold)
    assert abs(counts["heart"] - counts["michael"]) <= 1
    assert len({task.line for task in cold}) == len(cold) >= 40
    assert {task.key.temperature for task in hot} == {0.8}
