from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from eval.figures import Pair, Score, figures, pairs, ratio_interval, score, source_word_errors, word_errors
from eval.plan import Task
from eval.takes import SOURCE, VOICE, Take, TakeKey, TakeLog
from eval.texts import EvaluationText

TEXT = "one two three four five six."
_seeds = count()


def pair(
    heard: str, source_heard: str = TEXT, *, group: str = "sentences", spoken: str = TEXT, **facts: object
) -> Pair:
    said = TakeKey(VOICE, "slt", spoken, next(_seeds), 0.6, 0.6)
    source = Take(TakeKey(SOURCE, "slt", spoken), True, 2.2, 0.2, 2.0, 0.0, source_heard, True)
    take = replace(Take(said, True, 2.2, 0.1, 2.0, 0.0, heard, True), **facts)
    return Pair(group, take, source, known=True)


def test_a_voice_that_is_heard_like_its_source_has_a_ratio_of_one() -> None:
    errors = word_errors([pair("one two tree four five six", "one too three four five six")])
    assert (errors.voice, errors.source, errors.ratio) == pytest.approx((1 / 6, 1 / 6, 1))


def test_seeds_of_a_text_count_as_one_text_with_its_source_once() -> None:
    errors = word_errors([pair("one", "one two three four five"), pair(TEXT, "one two three four five")])
    assert (errors.texts, errors.words) == (1, 6)
    assert (errors.voice, errors.source) == pytest.approx((2.5 / 6, 1 / 6))


@pytest.mark.parametrize(
    ("heard", "source_heard", "lost"),
    [
        ("one two three", TEXT, False),
        ("one two", TEXT, True),
        ("", TEXT, True),
        # What the recogniser does not hear of the source either is not lost.
        ("one two", "one two three four", False),
        ("", "", False),
        # Words that were never to be said keep nothing.
        ("seven eight nine ten eleven twelve", TEXT, True),
    ],
)
def test_lost_is_more_than_half_of_what_was_heard_of_the_source(heard: str, source_heard: str, lost: bool) -> None:
    assert pair(heard, source_heard).lost is lost


def test_what_does_not_end_has_failed_however_well_it_is_heard() -> None:
    found = figures("slt", [pair(TEXT), pair(TEXT, ended=False), pair("")])
    assert (found.utterances, found.unended, found.lost, len(found.failed)) == (3, 1, 1, 2)


def test_durations_are_from_the_first_sound_to_the_last() -> None:
    found = figures("slt", [pair(TEXT, span_s=2.1), pair(TEXT, span_s=2.5, seconds=4.0)])
    assert found.duration_ratio == pytest.approx(1.15)
    assert found.duration_near == 0.5


def test_paragraphs_are_counted_apart() -> None:
    found = figures("slt", [pair(TEXT), pair(TEXT, group="paragraphs", span_s=2.4)])
    assert found.duration_ratio == 1
    assert found.paragraph_ratios == pytest.approx([1.2])


def test_first_sound_within_two_frames() -> None:
    found = figures("slt", [pair(TEXT, lead_s=0.16), pair(TEXT, lead_s=0.17)])
    assert found.lead_near == 0.5
    assert found.lead_ms_most == pytest.approx(170)


def test_a_choice_is_counted_where_one_was_asked_for() -> None:
    found = figures("slt", [pair(TEXT), pair(TEXT, chosen=False), pair(TEXT, chosen=None)])
    assert (found.right_choice, found.choices, found.source_right_choice) == (0.5, 2, 1)


def test_numbers_are_four_sets_together() -> None:
    errors = figures("slt", [pair(TEXT), pair("", group="times", spoken="a b."), pair("", group="names")]).word_errors
    assert errors["numbers"].words == 2
    assert set(errors) == {"sentences", "sentences of known words", "times", "names", "numbers", "everything"}
    assert errors["everything"].words == 8


def test_takes_find_their_source_and_what_is_not_done_yet_is_left_out(tmp_path: Path) -> None:
    done, missing = pair(TEXT), pair(TEXT)
    takes, sources = TakeLog(tmp_path / "takes"), TakeLog(tmp_path / "sources")
    takes.add(done.take)
    sources.add(done.source)
    line = EvaluationText("sentences", "1 2 3 4 5 6", TEXT)
    tasks = [Task(line, done.take.said, (TEXT,)), Task(line, missing.take.said, (TEXT,))]
    assert pairs(tasks, takes, sources) == [done]
    assert source_word_errors([Task(line, done.source.said)], sources) == {"sentences": 0}


@pytest.mark.parametrize(
    ("spoken", "heard", "errors", "kept"),
    [
        ("one two three.", "one two three", 0, 3),
        ("one two three.", "one too three", 1, 2),
        ("one two three.", "one three", 1, 2),
        ("one two three.", "one two two three", 1, 3),
        ("one two three.", "", 3, 0),
        ("one two three.", "four five six seven", 4, 0),
        ("doctor bell, at nine p m.", "dr. bell at nine pm", 0, 6),
    ],
)
def test_errors_and_words_kept(spoken: str, heard: str, errors: int, kept: int) -> None:
    found = score(spoken, heard)
    assert (found.errors, found.kept) == (errors, kept)


def test_of_equal_costs_the_one_that_keeps_most_words_counts() -> None:
    # Two errors either way: replace both, or drop one and add one around the word that was heard.
    assert score("a b", "b c") == Score(words=2, errors=2, kept=1)


def test_the_ratio_of_equal_errors_is_one() -> None:
    assert ratio_interval([1, 0, 2], [1, 0, 2]) == (1, 1, 1)


def test_the_interval_holds_the_ratio_and_narrows_with_more_texts() -> None:
    ratio, low, high = ratio_interval([3, 1, 0, 2] * 5, [1, 2, 1, 1] * 5)
    assert ratio == pytest.approx(1.2)
    assert low < ratio < high
    _, lower, higher = ratio_interval([3, 1, 0, 2] * 50, [1, 2, 1, 1] * 50)
    assert higher - lower < (high - low) / 2


def test_without_an_error_of_the_source_there_is_no_ratio() -> None:
    assert all(map(math.isnan, ratio_interval([1, 0], [0, 0])))
