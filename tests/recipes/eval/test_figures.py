"""Word errors, failures and durations."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from eval.figures import Pair, Score, figures, pairs, ratio_interval, score, source_word_errors, word_errors
from eval.measurements import SOURCE, VOICE, Measurement, MeasurementLog, UtteranceKey
from eval.plan import EvaluationText, Task

TEXT = "one two three four five six."
_seeds = count()


def pair(
    transcript: str, source_transcript: str = TEXT, *, group: str = "sentences", spoken: str = TEXT, **facts: object
) -> Pair:
    key = UtteranceKey(VOICE, "slt", spoken, next(_seeds), 0.6, 0.6)
    source = Measurement(UtteranceKey(SOURCE, "slt", spoken), True, 2.2, 0.2, 2.0, 0.0, source_transcript, True)
    measurement = replace(Measurement(key, True, 2.2, 0.1, 2.0, 0.0, transcript, True), **facts)
    return Pair(group, measurement, source, known=True)


def test_equal_errors_of_voice_and_source_have_ratio_one() -> None:
    errors = word_errors([pair("one two tree four five six", "one too three four five six")])
    assert (errors.voice, errors.source, errors.ratio) == pytest.approx((1 / 6, 1 / 6, 1))


def test_seeds_count_as_one_text() -> None:
    errors = word_errors([pair("one", "one two three four five"), pair(TEXT, "one two three four five")])
    assert (errors.texts, errors.words) == (1, 6)
    assert (errors.voice, errors.source) == pytest.approx((2.5 / 6, 1 / 6))


@pytest.mark.parametrize(
    ("transcript", "source_transcript", "lost"),
    [
        ("one two three", TEXT, False),
        ("one two", TEXT, True),
        ("", TEXT, True),
        # Words that are not recognised of the source either are not lost.
        ("one two", "one two three four", False),
        ("", "", False),
        # Other words do not count as kept.
        ("seven eight nine ten eleven twelve", TEXT, True),
    ],
)
def test_utterance_is_lost_below_half_of_source_words(transcript: str, source_transcript: str, lost: bool) -> None:
    assert pair(transcript, source_transcript).lost is lost


def test_utterance_without_end_has_failed() -> None:
    found = figures("slt", [pair(TEXT), pair(TEXT, ended=False), pair("")])
    assert (found.utterances, found.unended, found.lost, len(found.failed)) == (3, 1, 1, 2)


def test_duration_ratio_uses_speech_without_silence() -> None:
    found = figures("slt", [pair(TEXT, speech_s=2.1), pair(TEXT, speech_s=2.5, seconds=4.0)])
    assert found.duration_ratio == pytest.approx(1.15)
    assert found.duration_near == 0.5


def test_paragraph_ratios_are_separate() -> None:
    found = figures("slt", [pair(TEXT), pair(TEXT, group="paragraphs", speech_s=2.4)])
    assert found.duration_ratio == 1
    assert found.paragraph_ratios == pytest.approx([1.2])


def test_first_sound_within_two_frames() -> None:
    found = figures("slt", [pair(TEXT, leading_silence_s=0.16), pair(TEXT, leading_silence_s=0.17)])
    assert found.first_sound_near == 0.5
    assert found.leading_silence_ms_max == pytest.approx(170)


def test_choices_count_with_candidates_only() -> None:
    found = figures("slt", [pair(TEXT), pair(TEXT, chosen=False), pair(TEXT, chosen=None)])
    assert (found.right_choice, found.choices, found.source_right_choice) == (0.5, 2, 1)


def test_numbers_combine_four_sets() -> None:
    errors = figures("slt", [pair(TEXT), pair("", group="times", spoken="a b."), pair("", group="names")]).word_errors
    assert errors["numbers"].words == 2
    assert set(errors) == {"sentences", "sentences of known words", "times", "names", "numbers", "everything"}
    assert errors["everything"].words == 8


def test_pairs_contain_complete_tasks_only(tmp_path: Path) -> None:
    done, missing = pair(TEXT), pair(TEXT)
    log, sources = MeasurementLog(tmp_path / "measurements"), MeasurementLog(tmp_path / "sources")
    log.add(done.measurement)
    sources.add(done.source)
    line = EvaluationText("sentences", "1 2 3 4 5 6", TEXT)
    tasks = [Task(line, done.measurement.key, (TEXT,)), Task(line, missing.measurement.key, (TEXT,))]
    assert pairs(tasks, log, sources) == [done]
    assert source_word_errors([Task(line, done.source.key)], sources) == {"sentences": 0}


@pytest.mark.parametrize(
    ("spoken", "transcript", "errors", "kept"),
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
def test_errors_and_words_kept(spoken: str, transcript: str, errors: int, kept: int) -> None:
    found = score(spoken, transcript)
    assert (found.errors, found.kept) == (errors, kept)


def test_alignment_with_most_words_kept_is_preferred() -> None:
    # Two errors either way: two substitutions, or a deletion and an insertion.
    assert score("a b", "b c") == Score(words=2, errors=2, kept=1)


def test_ratio_of_equal_errors_is_one() -> None:
    assert ratio_interval([1, 0, 2], [1, 0, 2]) == (1, 1, 1)


def test_interval_contains_ratio_and_narrows_with_more_texts() -> None:
    ratio, low, high = ratio_interval([3, 1, 0, 2] * 5, [1, 2, 1, 1] * 5)
    assert ratio == pytest.approx(1.2)
    assert low < ratio < high
    _, lower, higher = ratio_interval([3, 1, 0, 2] * 50, [1, 2, 1, 1] * 50)
    assert higher - lower < (high - low) / 2


def test_ratio_without_source_errors_is_nan() -> None:
    assert all(map(math.isnan, ratio_interval([1, 0], [0, 0])))
