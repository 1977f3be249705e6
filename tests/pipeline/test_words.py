"""Word times on made-up audio: tones for speech, zeros for pauses."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import time

import numpy as np
import pytest
from voxgate.pipeline.speech import FRAME_SAMPLES, Pcm, WordTime
from voxgate.pipeline.words import SpokenClock


def tone(ms: int) -> Pcm:
    return (0.3 * np.sin(2 * np.pi * 200 * np.arange(ms * 24) / 24_000)).astype(np.float32)


def silence(ms: int) -> Pcm:
    return np.zeros(ms * 24, np.float32)


def spoken(source: str, *audio: Pcm, pace: float = 58.0) -> list[WordTime]:
    """All words of `source` at once, taken only at the end."""
    clock = SpokenClock(pace)
    clock.text(source, len(source))
    for pcm in audio:
        clock.audio(pcm)
    clock.finish()
    return clock.take_words()


def test_words_share_the_time_in_proportion_to_their_letters() -> None:
    words = spoken("abc abcdefg abc", tone(1600))
    assert [(word.start_ms, word.end_ms) for word in words] == [(0, 400), (400, 1200), (1200, 1600)]
    assert [(word.text, word.start, word.end) for word in words] == [
        ("abc", 0, 3),
        ("abcdefg", 4, 11),
        ("abc", 12, 15),
    ]


def test_silence_before_and_after_belongs_to_no_word() -> None:
    words = spoken("abc abc", silence(300), tone(800), silence(400))
    assert [(word.start_ms, word.end_ms) for word in words] == [(300, 700), (700, 1100)]


def test_a_pause_is_taken_for_the_nearest_punctuation() -> None:
    words = spoken("one two three, four five six", tone(900), silence(300), tone(600), pace=65)
    assert words[2].end_ms == 900
    assert words[3].start_ms == 1200
    assert words[-1].end_ms == 1800


def test_a_pause_far_from_any_punctuation_moves_nothing_but_time() -> None:
    words = spoken("abc abc abc abc", tone(800), silence(300), tone(800))
    assert [word.end_ms for word in words] == [400, 800, 1500, 1900]


def test_a_short_gap_is_part_of_speech() -> None:
    words = spoken("abc abc", tone(400), silence(100), tone(300))
    assert [word.end_ms for word in words] == [400, 800]


def test_digits_take_the_time_to_say_them() -> None:
    plain, number = spoken("abcd 1998", tone(2000))
    assert number.end_ms - number.start_ms > 2 * (plain.end_ms - plain.start_ms)


def test_chinese_moves_from_character_to_character() -> None:
    words = spoken("你好，世界。", tone(800))
    assert [word.text for word in words] == ["你", "好，", "世", "界。"]


def test_words_come_while_the_speech_goes_on_and_are_never_revised() -> None:
    source = "the quick brown fox jumps, over the lazy dog. And then it sleeps a little."
    clock = SpokenClock()
    given: list[WordTime] = []
    generated_ms = 0
    for step in range(60):
        clock.text(source, min(len(source), 4 * step))
        clock.audio(silence(80) if step in (22, 23, 24, 25) else tone(80))
        generated_ms += 80
        new = clock.take_words()
        assert all(word.end_ms <= generated_ms for word in new)
        given += new
    assert len(given) >= 8
    clock.finish()
    given += clock.take_words()
    assert [word.text for word in given] == source.split()
    times = [ms for word in given for ms in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert given[-1].end_ms == generated_ms


def test_an_unfinished_word_waits() -> None:
    clock = SpokenClock()
    clock.text("hello wor", 9)
    clock.audio(tone(4000))
    assert [word.text for word in clock.take_words()] == ["hello"]
    clock.text("hello world ", 12)
    assert [word.text for word in clock.take_words()] == ["world"]


def test_text_not_given_to_the_talker_is_not_spoken() -> None:
    clock = SpokenClock()
    clock.text("hello there ", 6)
    clock.audio(tone(4000))
    assert [word.text for word in clock.take_words()] == ["hello"]
    assert clock.spoken_until(4000) == 5


def test_what_was_heard_moves_from_word_to_word() -> None:
    clock = SpokenClock()
    source = " abc abcdefg abc"
    clock.text(source, len(source))
    clock.audio(tone(1600))
    clock.finish()
    heard = {ms: clock.spoken_until(ms) for ms in (0, 399, 400, 1199, 1200, 1599, 1600, 9999)}
    assert heard == {0: 1, 399: 1, 400: 5, 1199: 5, 1200: 13, 1599: 13, 1600: 16, 9999: 16}


def test_what_was_heard_is_known_in_mid_speech_and_never_goes_back() -> None:
    clock = SpokenClock()
    source = "one two three four five six seven eight nine ten "
    assert clock.spoken_until(1000) == 0
    clock.text(source, len(source))
    for _ in range(20):
        clock.audio(tone(80))
    heard = [clock.spoken_until(ms) for ms in range(0, 3000, 50)]
    assert heard == sorted(heard)
    assert 8 <= heard[-1] < len(source) - 10
    assert all(source[at - 1 : at].strip() == "" for at in heard)


def test_a_segment_speaks_its_own_text_and_the_next_begins_after_it() -> None:
    source = "abc abc. abcdefg abc."
    clock = SpokenClock()
    clock.text(source, len(source))
    clock.audio(tone(900))
    clock.segment_end(8)
    assert [(word.text, word.end_ms) for word in clock.take_words()] == [("abc", 450), ("abc.", 900)]
    clock.audio(np.concatenate([silence(200), tone(1200)]))
    clock.finish()
    times = [(word.text, word.start_ms, word.end_ms) for word in clock.take_words()]
    assert times == [("abcdefg", 1100, 1900), ("abc.", 1900, 2300)]


def test_the_pace_is_learnt_from_segment_to_segment() -> None:
    clock = SpokenClock(58)
    source = "abc " * 40
    for segment in range(10):
        clock.text(source, 16 * (segment + 1))
        clock.audio(tone(1280))  # 80 ms a weight
        clock.segment_end(16 * (segment + 1))
    assert 75 < clock.ms_per_weight < 81


@pytest.mark.parametrize("source", ["", "   ", "hello there"])
def test_no_audio_still_gives_every_word(source: str) -> None:
    words = spoken(source)
    assert [word.text for word in words] == source.split()
    assert all(word.start_ms == word.end_ms == 0 for word in words)


def test_audio_may_come_in_any_pieces() -> None:
    pcm = np.concatenate([silence(200), tone(900), silence(300), tone(600)])
    parts = [pcm[at : at + 777] for at in range(0, len(pcm), 777)]
    assert spoken("one two, three four", *parts) == spoken("one two, three four", pcm)


def test_a_frame_costs_next_to_nothing() -> None:
    clock = SpokenClock()
    frame = tone(80)[:FRAME_SAMPLES]
    begin = time.process_time()
    for _ in range(2000):
        clock.audio(frame)
    assert (time.process_time() - begin) / 2000 < 500e-6
