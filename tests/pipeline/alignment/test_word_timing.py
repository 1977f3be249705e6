"""Word times on synthetic speech: each part of a word is a sound of its class, of a duration unknown to the aligner."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes.pipeline.synthetic_speech import SOURCE, silence, spoken, tone
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES, Pcm
from voxgate.pipeline.alignment.aligner import MAX_UNCOMMITTED_HOPS
from voxgate.pipeline.alignment.coarse import CoarseScorer
from voxgate.pipeline.alignment.scorer import HOP_MS, Costs, Features
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.interface import WordTime
from voxgate.pipeline.text.sanitize import stand_in


def aligner_for(source: str, pace: float = 1.0) -> WordAligner:
    aligner = WordAligner(pace)
    aligner.push_text(source, len(source))
    return aligner


def frames(pcm: Pcm) -> list[Pcm]:
    return [pcm[at : at + FRAME_SAMPLES] for at in range(0, len(pcm), FRAME_SAMPLES)]


def times(source: str, *audio: Pcm, pace: float = 1.0) -> list[WordTime]:
    """Times of all words of `source`, taken at the end."""
    aligner = aligner_for(source, pace)
    for pcm in audio:
        aligner.push_audio(pcm)
    aligner.finish()
    return aligner.take_words()


@pytest.mark.parametrize("stretch", [0.75, 1.0, 1.35])
def test_word_ends_are_found_within_120_ms(stretch: float) -> None:
    pcm, ends = spoken(SOURCE, stretch=stretch, uneven=0.4)
    words = times(SOURCE, *frames(pcm))
    assert [word.text for word in words] == SOURCE.split()
    assert [SOURCE[word.start : word.end] for word in words] == SOURCE.split()
    missed = np.abs(np.array([word.end_ms for word in words]) - ends)
    assert np.median(missed) <= 40
    assert missed.max() <= 120


def test_leading_and_trailing_silence_belong_to_no_word() -> None:
    pcm, ends = spoken("seven stones")
    words = times("seven stones", silence(400), pcm, silence(500))
    assert abs(words[0].start_ms - 400) <= 40
    assert abs(words[-1].end_ms - 400 - ends[-1]) <= 60


def test_pause_belongs_to_no_word() -> None:
    source = "First this, then that."
    pcm, ends = spoken(source, pause_ms=700)
    words = times(source, pcm)
    assert abs(words[1].end_ms - ends[1]) <= 60
    assert abs(words[2].start_ms - ends[1] - 700) <= 60


def test_pause_without_punctuation_delays_later_words() -> None:
    first, _ = spoken("some people wait")
    second, ends = spoken("before they speak")
    words = times("some people wait before they speak", first, silence(600), second)
    gap = len(first) / 24
    assert abs(words[2].end_ms - gap) <= 80
    assert abs(words[-1].end_ms - gap - 600 - ends[-1]) <= 40


def test_digits_take_longer_than_letters() -> None:
    plain, number = times("abcd 1998", tone(1500))
    assert number.end_ms - number.start_ms > 2 * (plain.end_ms - plain.start_ms)


def test_each_chinese_character_is_a_word() -> None:
    words = times("你好，世界。", tone(800))
    assert [word.text for word in words] == ["你", "好，", "世", "界。"]
    assert all(word.end_ms > word.start_ms for word in words)


def test_words_are_emitted_during_speech_in_order() -> None:
    aligner = WordAligner()
    pcm, ends = spoken(SOURCE)
    emitted: list[WordTime] = []
    for step, frame in enumerate(frames(pcm)):
        aligner.push_text(SOURCE, min(len(SOURCE), 6 * step))
        aligner.push_audio(frame)
        new = aligner.take_words()
        assert all(word.end_ms <= 80 * (step + 1) for word in new)
        emitted += new
    assert len(emitted) >= 12
    aligner.finish()
    emitted += aligner.take_words()
    assert [word.text for word in emitted] == SOURCE.split()
    borders_ms = [ms for word in emitted for ms in (word.start_ms, word.end_ms)]
    assert borders_ms == sorted(borders_ms)
    assert abs(emitted[-1].end_ms - ends[-1]) <= 60


def test_word_that_may_still_grow_is_not_emitted() -> None:
    aligner = WordAligner()
    aligner.push_text("hello wor", 9)
    for frame in frames(spoken("hello wor")[0]):
        aligner.push_audio(frame)
    aligner.push_audio(silence(1000))
    assert [word.text for word in aligner.take_words()] == ["hello"]
    aligner.push_text("hello world ", 12)
    aligner.push_audio(np.concatenate([spoken("ld")[0], silence(600)]))
    assert [(word.text, word.start, word.end) for word in aligner.take_words()] == [("world", 6, 11)]


def test_word_has_the_character_of_two_halves() -> None:
    source = f"so{stand_in(0xD83D)}{stand_in(0xDE00)} nice"
    found = times(source, silence(400))
    assert [(word.text, word.start, word.end) for word in found] == [("so\U0001f600", 0, 4), ("nice", 5, 9)]


def test_uncommitted_text_is_not_aligned() -> None:
    aligner = WordAligner()
    aligner.push_text("hello there ", 6)
    for frame in frames(np.concatenate([spoken("hello")[0], silence(2000)])):
        aligner.push_audio(frame)
    assert [word.text for word in aligner.take_words()] == ["hello"]
    assert aligner.spoken_until(3000) == 5


def test_spoken_until_advances_by_words() -> None:
    source = " seven big stones"
    pcm, ends = spoken(source)
    aligner = aligner_for(source)
    aligner.push_audio(pcm)
    aligner.finish()
    words = aligner.take_words()
    heard = [aligner.spoken_until(ms) for ms in (0, words[0].end_ms - 1, words[0].end_ms, words[1].end_ms, 9999)]
    assert heard == [1, 1, 7, 11, 17]
    assert ends[-1] < 9999


def test_spoken_until_never_decreases_in_mid_speech() -> None:
    source = "one two three four five six seven eight nine ten "
    aligner = aligner_for(source)
    assert aligner.spoken_until(1000) == 0
    pcm, _ = spoken(source)
    for frame in frames(pcm)[:20]:
        aligner.push_audio(frame)
    heard = [aligner.spoken_until(ms) for ms in range(0, 3000, 50)]
    assert heard == sorted(heard)
    assert 8 <= heard[-1] < len(source) - 10
    assert all(source[at - 1 : at].strip() == "" for at in heard)


def test_segments_align_with_their_own_text() -> None:
    first, first_ends = spoken("Seven stones.")
    second, second_ends = spoken("Many people sing.")
    source = "Seven stones. Many people sing."
    aligner = aligner_for(source)
    aligner.push_audio(first)
    aligner.end_segment(13)
    assert [word.text for word in aligner.take_words()] == ["Seven", "stones."]
    aligner.push_audio(second)
    aligner.finish()
    words = aligner.take_words()
    assert [word.text for word in words] == ["Many", "people", "sing."]
    assert abs(words[0].start_ms - len(first) / 24) <= 60
    assert abs(words[-1].end_ms - len(first) / 24 - second_ends[-1]) <= 60
    assert first_ends[-1] < words[0].start_ms


@pytest.mark.parametrize("stretch", [0.7, 1.4])
def test_pace_converges_over_segments(stretch: float) -> None:
    aligner = WordAligner()
    source = ""
    for _ in range(10):
        source += "Seven silent people sing. "
        aligner.push_text(source, len(source))
        aligner.push_audio(spoken("Seven silent people sing.", stretch=stretch)[0])
        aligner.end_segment(len(source))
    assert abs(aligner.pace - stretch) < 0.12


@pytest.mark.parametrize("source", ["", "   ", "hello there"])
def test_words_without_audio_have_zero_times(source: str) -> None:
    words = times(source)
    assert [word.text for word in words] == source.split()
    assert all(word.start_ms == word.end_ms == 0 for word in words)


def test_audio_too_short_for_its_text_is_divided_by_expected_durations() -> None:
    words = times(SOURCE, tone(400))
    assert [word.text for word in words] == SOURCE.split()
    assert words[-1].end_ms == 400
    assert words[7].end_ms in range(150, 250)


def test_times_do_not_depend_on_how_audio_is_split() -> None:
    pcm, _ = spoken(SOURCE)
    parts = [pcm[at : at + 777] for at in range(0, len(pcm), 777)]
    assert times(SOURCE, *parts) == times(SOURCE, pcm)


class CountingScorer(CoarseScorer):
    """Counts the emission costs computed: the work of the alignment."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = 0

    def costs(self, features: Features, emissions: NDArray[Any]) -> Costs:
        self.cells += len(features) * len(emissions)
        return super().costs(features, emissions)


def test_work_per_frame_is_bounded_in_long_text() -> None:
    source = SOURCE * 40
    scorer = CountingScorer()
    aligner = WordAligner(scorer=scorer)
    aligner.push_text(source, len(source))
    pcm = frames(spoken(SOURCE)[0])
    for n in range(1000):
        aligner.push_audio(pcm[n % len(pcm)])
        aligner.take_words()
    assert len(pcm) < 1000
    assert scorer.cells <= 1000 * FRAME_MS // HOP_MS * CoarseScorer.beam_states


def test_speech_unrelated_to_text_keeps_bounded_hops() -> None:
    aligner = aligner_for("one two three")
    for _ in range(1500):
        aligner.push_audio(silence(80))
    assert aligner.take_words() == []
    path = aligner._aligner.path()
    assert path is not None
    assert len(path.states) == MAX_UNCOMMITTED_HOPS
    aligner.push_audio(spoken("one two three")[0])
    aligner.finish()
    words = aligner.take_words()
    assert [word.text for word in words] == ["one", "two", "three"]
    assert abs(words[0].start_ms - 120_000) <= 60
