from __future__ import annotations

import math

import pytest
from eval.score import Score, ratio_interval, score


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
