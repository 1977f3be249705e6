"""Word times by phones, on made-up codes: letters of uneven lengths, and one code in ten wrong."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.pipeline.synthetic_codes import Codes, ear, no_sound, spoken
from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.phones import spoken as as_spoken
from voxgate.pipeline.alignment.word_timing import WordAligner, WordTiming
from voxgate.pipeline.interface import WordTime

SOURCE = "the quick brown fox jumps, over the lazy dog. And then it sleeps a little."
WORDS = SOURCE.split()


def clock_for(source: str) -> WordAligner:
    clock = WordAligner(ear=ear())
    clock.text(source, len(source))
    return clock


def hear(clock: WordTiming, codes: Codes) -> list[WordTime]:
    """A frame at a time; what is given out on the way."""
    given: list[WordTime] = []
    for at in range(len(codes)):
        clock.audio(no_sound(codes[at : at + 1]), codes[at : at + 1])
        given += clock.take_words()
    return given


@pytest.mark.parametrize("seed", range(5))
def test_words_are_found_where_they_are_spoken(seed: int) -> None:
    codes, ends = spoken(SOURCE, seed=seed)
    clock = clock_for(SOURCE)
    words = hear(clock, codes)
    clock.finish()
    words += clock.take_words()
    assert [word.text for word in words] == WORDS
    missed = np.abs(np.array([word.end_ms for word in words]) - ends)
    assert np.median(missed) == 0
    assert missed.max() <= 2 * FRAME_MS


def test_words_are_given_out_once_nothing_is_likely_to_move_them() -> None:
    codes, _ = spoken(SOURCE)
    clock = clock_for(SOURCE)
    given = []
    for at in range(len(codes)):
        clock.audio(no_sound(codes[at : at + 1]), codes[at : at + 1])
        for word in clock.take_words():
            assert word.end_ms <= FRAME_MS * (at + 1) - 60
            given.append((word, FRAME_MS * (at + 1) - word.end_ms))
    assert np.median([waited for _, waited in given]) <= 320
    assert len(given) >= len(WORDS) - 2
    moments = [ms for word, _ in given for ms in (word.start_ms, word.end_ms)]
    assert moments == sorted(moments)


def test_what_could_be_either_word_waits() -> None:
    """ "aaa" and "aa" cannot be told apart before something else is heard."""
    codes, _ = spoken("aaa aa b.", slips=0)
    clock = clock_for("aaa aa b.")
    spoken_a = int(np.argmax(codes != codes[0]))
    assert hear(clock, codes[:spoken_a]) == []
    clock.finish()
    assert [word.text for word in clock.take_words()] == ["aaa", "aa", "b."]


def test_pauses_belong_to_no_word_asked_for_or_not() -> None:
    first, first_ends = spoken("one two.", slips=0, pause_frames=9)
    second, second_ends = spoken("three four", slips=0)
    silence = np.zeros(5, np.int16)
    clock = clock_for("one two. three four")
    words = hear(clock, np.concatenate([silence, first, second, silence]))
    clock.finish()
    words += clock.take_words()
    assert words[0].start_ms == 5 * FRAME_MS
    assert words[1].end_ms == first_ends[1] + 5 * FRAME_MS
    begin = (5 + len(first)) * FRAME_MS
    assert words[2].start_ms == begin
    assert words[3].end_ms == begin + second_ends[-1]


def test_a_word_that_was_not_said_takes_next_to_no_time() -> None:
    codes, ends = spoken("one two four five", slips=0)
    clock = clock_for("one two three four five")
    words = hear(clock, codes)
    clock.finish()
    words += clock.take_words()
    assert abs(words[1].end_ms - ends[1]) <= FRAME_MS
    assert words[2].end_ms - words[2].start_ms <= FRAME_MS
    assert words[4].end_ms == ends[-1]


def test_what_is_written_otherwise_is_found_as_it_is_said() -> None:
    codes, ends = spoken("by two o'clock they weighed six kilograms", slips=0)
    source = "By 2:00 they weighed 6 kg"
    clock = clock_for(source)
    words = hear(clock, codes)
    clock.finish()
    words += clock.take_words()
    told = [(word.text, word.end_ms) for word in words]
    assert told == list(zip(source.split(), [ends[0], *ends[2:]], strict=True))


@pytest.mark.parametrize(
    ("word", "before", "letters"),
    [
        ("kg", "8", "kilograms"),
        ("Main", "the", "main"),
        ("$3", "", "three dollars"),
        ("million.", "$3", "million. dollars"),
        ("million", "3", "million"),
        ("of", "$3", "of"),
    ],
)
def test_a_word_may_depend_on_the_one_before(word: str, before: str, letters: str) -> None:
    assert as_spoken(word, before) == letters


def test_what_has_no_letters_takes_no_part() -> None:
    codes, ends = spoken("one two", slips=0)
    clock = clock_for("one — 二 two")
    hear(clock, codes)
    clock.finish()
    assert clock.spoken_until(round(ends[-1]) - FRAME_MS) == 8
    assert clock.spoken_until(round(ends[-1])) == 11


@pytest.mark.parametrize("deferred", [False, True])
def test_what_was_heard_is_told_to_the_word(deferred: bool) -> None:
    """At every word's middle, of all the words before it: what an interrupt reports."""
    codes, ends = spoken(SOURCE)
    clock: WordTiming = LazyWordAligner(clock_for(SOURCE)) if deferred else clock_for(SOURCE)
    if deferred:
        clock.text(SOURCE, len(SOURCE))
    starts = [0, *(at + 1 for at, char in enumerate(SOURCE) if char == " ")]
    heard, middles = 0, [(begin + end) / 2 for begin, end in zip([0, *ends], ends, strict=False)]
    for start, middle in zip(starts, middles, strict=True):
        # Playback lags half a second behind what was made, or is right behind it.
        for lag_frames in (1, 6):
            until = min(len(codes), round(middle / FRAME_MS) + lag_frames)
            hear(clock, codes[heard:until])
            heard = max(heard, until)
            assert clock.spoken_until(round(middle)) == start
    clock.finish()
    assert clock.spoken_until(10**6) == len(SOURCE)


def test_a_segment_is_followed_on_its_own() -> None:
    first, first_ends = spoken("seven stones.")
    second, second_ends = spoken("many people sing.")
    clock = clock_for("seven stones. many people sing.")
    words = hear(clock, first)
    clock.segment_end(13)
    words += hear(clock, second)
    clock.finish()
    words += clock.take_words()
    begin = FRAME_MS * len(first)
    wanted = [*first_ends, *(begin + end for end in second_ends)]
    assert max(abs(word.end_ms - end) for word, end in zip(words, wanted, strict=True)) <= FRAME_MS


def test_only_codes_are_kept_until_someone_asks() -> None:
    codes, _ = spoken("one")
    heard = ear().hear(no_sound(codes), codes)
    assert heard.nbytes == 2 * len(codes)
