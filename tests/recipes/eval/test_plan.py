from __future__ import annotations

from collections import Counter

from eval import texts
from eval.plan import CHOICES, FULL, QUICK, NearestInLength, source_tasks, sweep_tasks, voice_tasks
from eval.texts import EvaluationText


def nothing(_: EvaluationText) -> tuple[str, ...]:
    return ()


def test_a_full_run_says_enough_for_every_figure() -> None:
    counts = Counter(task.line.group for task in voice_tasks("slt", FULL, nothing, (0.6, 0.6)))
    assert counts[texts.SENTENCES] >= 600
    assert all(counts[group] >= 30 for group in (*texts.NUMBERS, texts.NAMES))
    assert counts[texts.PARAGRAPHS] >= 10


def test_every_utterance_is_another() -> None:
    tasks = voice_tasks("slt", FULL, nothing, (0.6, 0.6))
    assert len({task.said for task in tasks}) == len(tasks)


def test_a_quick_run_is_part_of_a_full_one() -> None:
    # What a quick run has heard, a full one need not hear again; paragraphs are all the same length.
    full = {task.said for task in voice_tasks("slt", FULL, nothing, (0.6, 0.6))}
    quick = {task.said for task in voice_tasks("slt", QUICK, nothing, (0.6, 0.6))}
    assert quick < full
    assert len(quick) < len(full) / 5


def test_every_text_has_its_source() -> None:
    sources = {task.said.spoken for task in source_tasks("slt", QUICK, nothing)}
    assert {task.said.spoken for task in voice_tasks("slt", QUICK, nothing, (0.6, 0.6))} == sources


def test_candidates_are_the_text_itself_and_the_nearest_in_length() -> None:
    line, *others = texts.load(texts.SENTENCES)
    chosen = NearestInLength(lambda text: text != others[0].spoken)(line)
    assert chosen[0] == line.spoken
    assert len(set(chosen)) == CHOICES
    assert others[0].spoken not in chosen
    farthest = max(abs(len(other) - len(line.spoken)) for other in chosen)
    nearer = [other for other in others[1:] if abs(len(other.spoken) - len(line.spoken)) < farthest]
    assert all(other.spoken in chosen for other in nearer)


def test_there_is_no_choice_where_the_recogniser_lacks_a_word() -> None:
    line = texts.load(texts.SENTENCES)[0]
    assert NearestInLength(lambda text: text != line.spoken)(line) == ()


def test_all_temperatures_say_the_same_in_the_same_voices() -> None:
    cold, hot = (sweep_tasks(["slt", "rms"], nothing, (value, value)) for value in (0.3, 0.8))
    assert [(task.line, task.said.voice) for task in cold] == [(task.line, task.said.voice) for task in hot]
    assert Counter(task.said.voice for task in cold) == {"slt": len(cold) // 2, "rms": len(cold) // 2}
    assert len({task.line for task in cold}) == len(cold) >= 40
    assert {task.said.temperature for task in hot} == {0.8}
