"""The tasks of a run."""

from __future__ import annotations

from collections import Counter

from eval import texts
from eval.plan import CHOICES, FULL, QUICK, NearestInLength, source_tasks, sweep_tasks, voice_tasks
from eval.texts import EvaluationText


def no_candidates(_: EvaluationText) -> tuple[str, ...]:
    return ()


def test_full_run_has_enough_utterances() -> None:
    counts = Counter(task.line.group for task in voice_tasks("slt", FULL, no_candidates, (0.6, 0.6)))
    assert counts[texts.SENTENCES] >= 600
    assert all(counts[group] >= 30 for group in (*texts.NUMBERS, texts.NAMES))
    assert counts[texts.PARAGRAPHS] >= 10


def test_utterances_are_distinct() -> None:
    tasks = voice_tasks("slt", FULL, no_candidates, (0.6, 0.6))
    assert len({task.key for task in tasks}) == len(tasks)


def test_quick_run_is_part_of_full_run() -> None:
    # So a full run reuses the measurements of a quick one.
    full = {task.key for task in voice_tasks("slt", FULL, no_candidates, (0.6, 0.6))}
    quick = {task.key for task in voice_tasks("slt", QUICK, no_candidates, (0.6, 0.6))}
    assert quick < full
    assert len(quick) < len(full) / 5


def test_every_text_has_a_source_task() -> None:
    sources = {task.key.spoken for task in source_tasks("slt", QUICK, no_candidates)}
    assert {task.key.spoken for task in voice_tasks("slt", QUICK, no_candidates, (0.6, 0.6))} == sources


def test_candidates_are_text_and_nearest_in_length() -> None:
    line, *others = texts.load(texts.SENTENCES)
    chosen = NearestInLength(lambda text: text != others[0].spoken)(line)
    assert chosen[0] == line.spoken
    assert len(set(chosen)) == CHOICES
    assert others[0].spoken not in chosen
    farthest = max(abs(len(other) - len(line.spoken)) for other in chosen)
    nearer = [other for other in others[1:] if abs(len(other.spoken) - len(line.spoken)) < farthest]
    assert all(other.spoken in chosen for other in nearer)


def test_text_with_unknown_word_has_no_candidates() -> None:
    line = texts.load(texts.SENTENCES)[0]
    assert NearestInLength(lambda text: text != line.spoken)(line) == ()


def test_sweep_has_same_lines_and_voices_for_all_temperatures() -> None:
    cold, hot = (sweep_tasks(["slt", "rms"], no_candidates, (value, value)) for value in (0.3, 0.8))
    assert [(task.line, task.key.voice) for task in cold] == [(task.line, task.key.voice) for task in hot]
    assert Counter(task.key.voice for task in cold) == {"slt": len(cold) // 2, "rms": len(cold) // 2}
    assert len({task.line for task in cold}) == len(cold) >= 40
    assert {task.key.temperature for task in hot} == {0.8}
