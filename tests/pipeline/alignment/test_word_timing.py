"""Word times on made-up speech: each part of a word is a sound of its kind, of a length that the clock cannot know."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import time

import numpy as np
import pytest
from fakes.pipeline.synthetic_speech import SOURCE, silence, spoken, tone
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.interface import WordTime


def clock_for(source: str, pace: float = 1.0) -> WordAligner:
    clock = WordAligner(pace)
    clock.text(source, len(source))
    return clock


def frames(pcm: Pcm) -> list[Pcm]:
    return [pcm[at : at + FRAME_SAMPLES] for at in range(0, len(pcm), FRAME_SAMPLES)]


def times(source: str, *audio: Pcm, pace: float = 1.0) -> list[WordTime]:
    """All words of `source`, taken only at the end."""
    clock = clock_for(source, pace)
    for pcm in audio:
        clock.audio(pcm)
    clock.finish()
    return clock.take_words()


@pytest.mark.parametrize("stretch", [0.75, 1.0, 1.35])
def test_words_are_found_where_they_are_spoken(stretch: float) -> None:
    pcm, ends = spoken(SOURCE, stretch=stretch, uneven=0.4)
    words = times(SOURCE, *frames(pcm))
    assert [word.text for word in words] == SOURCE.split()
    assert [SOURCE[word.start : word.end] for word in words] == SOURCE.split()
    missed = np.abs(np.array([word.end_ms for word in words]) - ends)
    assert np.median(missed) <= 40
    assert missed.max() <= 120


def test_silence_before_and_after_belongs_to_no_word() -> None:
    pcm, ends = spoken("seven stones")
    words = times("seven stones", silence(400), pcm, silence(500))
    assert abs(words[0].start_ms - 400) <= 40
    assert abs(words[-1].end_ms - 400 - ends[-1]) <= 60


def test_a_pause_belongs_to_no_word() -> None:
    source = "First this, then that."
    pcm, ends = spoken(source, pause_ms=700)
    words = times(source, pcm)
    assert abs(words[1].end_ms - ends[1]) <= 60
    assert abs(words[2].start_ms - ends[1] - 700) <= 60


def test_a_pause_that_no_punctuation_asks_for_moves_the_words_behind_it() -> None:
    first, _ = spoken("some people wait")
    second, ends = spoken("before they speak")
    words = times("some people wait before they speak", first, silence(600), second)
    gap = len(first) / 24
    assert abs(words[2].end_ms - gap) <= 80
    assert abs(words[-1].end_ms - gap - 600 - ends[-1]) <= 40


def test_digits_take_the_time_to_say_them() -> None:
    plain, number = times("abcd 1998", tone(1500))
    assert number.end_ms - number.start_ms > 2 * (plain.end_ms - plain.start_ms)


def test_chinese_moves_from_character_to_character() -> None:
    words = times("你好，世界。", tone(800))
    assert [word.text for word in words] == ["你", "好，", "世", "界。"]
    assert all(word.end_ms > word.start_ms for word in words)


def test_words_come_while_the_speech_goes_on_and_are_never_revised() -> None:
    clock = WordAligner()
    pcm, ends = spoken(SOURCE)
    given: list[WordTime] = []
    for step, frame in enumerate(frames(pcm)):
        clock.text(SOURCE, min(len(SOURCE), 6 * step))
        clock.audio(frame)
        new = clock.take_words()
        assert all(word.end_ms <= 80 * (step + 1) for word in new)
        given += new
    assert len(given) >= 12
    clock.finish()
    given += clock.take_words()
    assert [word.text for word in given] == SOURCE.split()
    moments = [ms for word in given for ms in (word.start_ms, word.end_ms)]
    assert moments == sorted(moments)
    assert abs(given[-1].end_ms - ends[-1]) <= 60


def test_a_word_that_may_still_grow_waits() -> None:
    clock = WordAligner()
    clock.text("hello wor", 9)
    for frame in frames(spoken("hello wor")[0]):
        clock.audio(frame)
    clock.audio(silence(1000))
    assert [word.text for word in clock.take_words()] == ["hello"]
    clock.text("hello world ", 12)
    clock.audio(np.concatenate([spoken("ld")[0], silence(600)]))
    assert [(word.text, word.start, word.end) for word in clock.take_words()] == [("world", 6, 11)]


def test_text_not_given_to_the_talker_is_not_spoken() -> None:
    clock = WordAligner()
    clock.text("hello there ", 6)
    for frame in frames(np.concatenate([spoken("hello")[0], silence(2000)])):
        clock.audio(frame)
    assert [word.text for word in clock.take_words()] == ["hello"]
    assert clock.spoken_until(3000) == 5


def test_what_was_heard_moves_from_word_to_word() -> None:
    source = " seven big stones"
    pcm, ends = spoken(source)
    clock = clock_for(source)
    clock.audio(pcm)
    clock.finish()
    words = clock.take_words()
    heard = [clock.spoken_until(ms) for ms in (0, words[0].end_ms - 1, words[0].end_ms, words[1].end_ms, 9999)]
    assert heard == [1, 1, 7, 11, 17]
    assert ends[-1] < 9999


def test_what_was_heard_is_known_in_mid_speech_and_never_goes_back() -> None:
    source = "one two three four five six seven eight nine ten "
    clock = clock_for(source)
    assert clock.spoken_until(1000) == 0
    pcm, _ = spoken(source)
    for frame in frames(pcm)[:20]:
        clock.audio(frame)
    heard = [clock.spoken_until(ms) for ms in range(0, 3000, 50)]
    assert heard == sorted(heard)
    assert 8 <= heard[-1] < len(source) - 10
    assert all(source[at - 1 : at].strip() == "" for at in heard)


def test_a_segment_speaks_its_own_text_and_the_next_begins_after_it() -> None:
    first, first_ends = spoken("Seven stones.")
    second, second_ends = spoken("Many people sing.")
    source = "Seven stones. Many people sing."
    clock = clock_for(source)
    clock.audio(first)
    clock.segment_end(13)
    assert [word.text for word in clock.take_words()] == ["Seven", "stones."]
    clock.audio(second)
    clock.finish()
    words = clock.take_words()
    assert [word.text for word in words] == ["Many", "people", "sing."]
    assert abs(words[0].start_ms - len(first) / 24) <= 60
    assert abs(words[-1].end_ms - len(first) / 24 - second_ends[-1]) <= 60
    assert first_ends[-1] < words[0].start_ms


@pytest.mark.parametrize("stretch", [0.7, 1.4])
def test_the_pace_is_learnt_from_segment_to_segment(stretch: float) -> None:
    clock = WordAligner()
    source = ""
    for _ in range(10):
        source += "Seven silent people sing. "
        clock.text(source, len(source))
        clock.audio(spoken("Seven silent people sing.", stretch=stretch)[0])
        clock.segment_end(len(source))
    assert abs(clock.pace - stretch) < 0.12


@pytest.mark.parametrize("source", ["", "   ", "hello there"])
def test_no_audio_still_gives_every_word(source: str) -> None:
    words = times(source)
    assert [word.text for word in words] == source.split()
    assert all(word.start_ms == word.end_ms == 0 for word in words)


def test_audio_too_short_for_its_text_is_shared_out() -> None:
    words = times(SOURCE, tone(400))
    assert [word.text for word in words] == SOURCE.split()
    assert words[-1].end_ms == 400
    assert words[7].end_ms in range(150, 250)


def test_audio_may_come_in_any_pieces() -> None:
    pcm, _ = spoken(SOURCE)
    parts = [pcm[at : at + 777] for at in range(0, len(pcm), 777)]
    assert times(SOURCE, *parts) == times(SOURCE, pcm)


def test_a_frame_costs_next_to_nothing_even_in_a_long_text() -> None:
    source = SOURCE * 40
    clock = clock_for(source)
    pcm = frames(spoken(SOURCE)[0])
    begin = time.process_time()
    for n in range(1000):
        clock.audio(pcm[n % len(pcm)])
        clock.take_words()
    assert (time.process_time() - begin) / 1000 < 2e-3


def test_sound_that_follows_no_text_does_not_pile_up() -> None:
    clock = clock_for("one two three")
    for _ in range(1500):
        clock.audio(silence(80))
    assert clock.take_words() == []
    begin = time.process_time()
    for _ in range(100):
        clock.audio(silence(80))
    assert (time.process_time() - begin) / 100 < 4e-3
    clock.audio(spoken("one two three")[0])
    clock.finish()
    words = clock.take_words()
    assert [word.text for word in words] == ["one", "two", "three"]
    assert abs(words[0].start_ms - 128_000) <= 60
