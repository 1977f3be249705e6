"""Word errors, failures and durations."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from eval.figures import (
    Pair,
    figures,
    pairs,
    share_interval,
    source_figures,
    speakers,
    suspicious,
    word_errors,
)
from eval.measurements import SOURCE, VOICE, Measurement, MeasurementLog, UtteranceKey
from eval.plan import EvaluationText, Task

TEXT = "one two three four five six."
_seeds = count()


def pair(
    transcript: str, source_transcript: str = TEXT, *, group: str = "sentences", spoken: str = TEXT, **facts: object
) -> Pair:
    key = UtteranceKey(VOICE, "heart", spoken, next(_seeds), 0.6, 0.6)
    source = Measurement(UtteranceKey(SOURCE, "heart", spoken), True, 2.2, 0.2, 2.0, 0.0, source_transcript, 4.5)
    measurement = replace(Measurement(key, True, 2.2, 0.1, 2.0, 0.0, transcript, 4.0), **facts)
    return Pair(group, measurement, source)


def test_errors_of_voice_and_source() -> None:
    errors = word_errors([pair("one two tree four five six", "one too three four five six")])
    assert (errors.voice, errors.source) == pytest.approx((1 / 6, 1 / 6))


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
    found = figures("heart", [pair(TEXT), pair(TEXT, ended=False), pair("")])
    assert (found.utterances, found.unended, found.lost, len(found.failed)) == (3, 1, 1, 2)


def test_words_said_twice_are_a_failure_unless_the_source_is_heard_so_too() -> None:
    twice = "one two two three four five six"
    assert figures("heart", [pair(twice), pair(TEXT)]).said_twice == 1
    assert pair(twice).failed
    assert not pair(twice, twice).failed


def test_checked_utterances_count_as_failures_only() -> None:
    lost, heard = pair("one two"), pair("one two", "one two three four")
    assert suspicious(lost.measurement)
    assert suspicious(heard.measurement)
    found = figures("heart", [pair(TEXT)], [lost, heard], unsuspected=7)
    assert (found.utterances, found.lost, len(found.failed)) == (10, 1, 1)
    assert found.word_errors["everything"].voice == 0


@pytest.mark.parametrize(
    ("transcript", "ended", "suspected"),
    [
        (TEXT, True, False),
        (TEXT, False, True),
        ("one two three", True, False),
        ("one two", True, True),
        ("one two two three four five six", True, True),
    ],
)
def test_failures_are_suspected_without_a_source(transcript: str, ended: bool, suspected: bool) -> None:
    assert suspicious(pair(transcript, ended=ended).measurement) is suspected


def test_unscored_utterances_have_no_opinion_scores() -> None:
    found = figures("heart", [pair(TEXT, mos=4.0), pair(TEXT, mos=None), pair(TEXT, group="talk", mos=None)])
    assert set(found.mos) == {"sentences", "everything"}
    assert (found.mos["everything"].utterances, found.mos["everything"].voice) == (1, 4.0)
    assert found.word_errors["talk"].voice == 0


def test_changes_within_long_texts() -> None:
    paragraphs = [pair(TEXT, group="paragraphs", drift_db=db, speaker_kept=kept) for db, kept in ((-2, 0.9), (1, 0.8))]
    for one in paragraphs:
        object.__setattr__(one, "source", replace(one.source, drift_db=0.5, speaker_kept=0.95))
    long = figures("heart", [pair(TEXT), *paragraphs]).long
    assert long is not None
    assert (long.drift_db, long.most_drift_db, long.source_drift_db) == (1.5, 2, 0.5)
    assert (long.speaker_kept, long.source_speaker_kept) == (0.8, 0.95)
    assert figures("heart", [pair(TEXT)]).long is None


def test_similarity_of_speakers() -> None:
    def of(speaker: tuple[float, float], source: tuple[float, float]) -> Pair:
        one = pair(TEXT, speaker=speaker)
        return replace(one, source=replace(one.source, speaker=source))

    found = speakers({"ada": [of((1, 0), (1, 0)), of((0, 1), (1, 0))], "bob": [of((0.6, 0.8), (0, 1))], "mute": []})
    assert set(found) == {"ada", "bob"}
    assert (found["ada"].voice, found["ada"].source, found["ada"].other, found["ada"].right) == (0.5, 1, 0.5, 0.5)
    assert (found["bob"].voice, found["bob"].other, found["bob"].right) == (0.8, 0.6, 1)


def test_duration_ratio_uses_speech_without_silence() -> None:
    found = figures("heart", [pair(TEXT, speech_s=2.1), pair(TEXT, speech_s=2.5, seconds=4.0)])
    assert found.duration_ratio == pytest.approx(1.15)
    assert found.duration_near == 0.5


def test_paragraph_ratios_are_separate() -> None:
    found = figures("heart", [pair(TEXT), pair(TEXT, group="paragraphs", speech_s=2.4)])
    assert found.duration_ratio == 1
    assert found.paragraph_ratios == pytest.approx([1.2])


def test_first_sound_within_two_frames() -> None:
    found = figures("heart", [pair(TEXT, leading_silence_s=0.16), pair(TEXT, leading_silence_s=0.17)])
    assert found.first_sound_near == 0.5
    assert found.leading_silence_ms_max == pytest.approx(170)


def test_opinion_scores_are_means_and_a_reading_counts_once() -> None:
    scores = figures("heart", [pair(TEXT, mos=4.2), pair(TEXT, mos=3.8), pair(TEXT, group="talk", mos=2.0)]).mos
    assert (scores["sentences"].voice, scores["sentences"].source) == pytest.approx((4.0, 4.5))
    assert 3.8 <= scores["sentences"].worst < 4.0
    assert scores["everything"].voice == pytest.approx(10 / 3)


def test_numbers_combine_four_sets() -> None:
    errors = figures(
        "heart", [pair(TEXT), pair("", group="times", spoken="so no."), pair("", group="names")]
    ).word_errors
    assert errors["numbers"].words == 2
    assert set(errors) == {"sentences", "times", "names", "numbers", "everything"}
    assert errors["everything"].words == 8


def test_pairs_contain_complete_tasks_only(tmp_path: Path) -> None:
    done, missing = pair(TEXT), pair(TEXT)
    log, sources = MeasurementLog(tmp_path / "measurements"), MeasurementLog(tmp_path / "sources")
    log.add(done.measurement)
    sources.add(done.source)
    line = EvaluationText("sentences", "1 2 3 4 5 6", TEXT)
    tasks = [Task(line, done.measurement.key), Task(line, missing.measurement.key)]
    assert pairs(tasks, log, sources) == [done]
    found = source_figures([Task(line, done.source.key)], sources)
    assert (found.word_errors, found.mos) == (
        {"sentences": 0, "everything": 0},
        {"sentences": 4.5, "everything": 4.5},
    )


def test_interval_contains_share_and_narrows_with_more_texts() -> None:
    low, high = share_interval([3, 1, 0, 2] * 5, [10] * 20)
    assert low < 0.15 < high
    lower, higher = share_interval([3, 1, 0, 2] * 50, [10] * 200)
    assert higher - lower < (high - low) / 2
