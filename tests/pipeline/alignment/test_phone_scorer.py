"""Word times by phones, on synthetic codes: letters of uneven lengths, and one code in ten wrong."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.pipeline.synthetic_codes import Codes, acoustic_scorer, no_sound, spoken
from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.phones import spoken_word
from voxgate.pipeline.alignment.word_timing import WordAligner, WordTiming
from voxgate.pipeline.interface import WordTime

SOURCE = "the quick brown fox jumps, over the lazy dog. And then it sleeps a little."
WORDS = SOURCE.split()


def aligner_for(source: str) -> WordAligner:
    aligner = WordAligner(scorer=acoustic_scorer())
    aligner.push_text(source, len(source))
    return aligner


def push_frames(timing: WordTiming, codes: Codes) -> list[WordTime]:
    """Push the codes frame by frame; returns the words emitted meanwhile."""
    emitted: list[WordTime] = []
    for at in range(len(codes)):
        timing.push_audio(no_sound(codes[at : at + 1]), codes[at : at + 1])
        emitted += timing.take_words()
    return emitted


@pytest.mark.parametrize("seed", range(5))
def test_word_ends_are_found_within_two_frames(seed: int) -> None:
    codes, ends = spoken(SOURCE, seed=seed)
    aligner = aligner_for(SOURCE)
    words = push_frames(aligner, codes)
    aligner.finish()
    words += aligner.take_words()
    assert [word.text for word in words] == WORDS
    missed = np.abs(np.array([word.end_ms for word in words]) - ends)
    assert np.median(missed) == 0
    assert missed.max() <= 2 * FRAME_MS


def test_words_are_emitted_in_order_soon_after_they_end() -> None:
    codes, _ = spoken(SOURCE)
    aligner = aligner_for(SOURCE)
    emitted = []
    for at in range(len(codes)):
        aligner.push_audio(no_sound(codes[at : at + 1]), codes[at : at + 1])
        for word in aligner.take_words():
            assert word.end_ms <= FRAME_MS * (at + 1) - 60
            emitted.append((word, FRAME_MS * (at + 1) - word.end_ms))
    assert np.median([waited for _, waited in emitted]) <= 320
    assert len(emitted) >= len(WORDS) - 2
    borders_ms = [ms for word, _ in emitted for ms in (word.start_ms, word.end_ms)]
    assert borders_ms == sorted(borders_ms)


def test_ambiguous_border_is_not_emitted() -> None:
    """The border between "aaa" and "aa" is unknown until another sound follows."""
    codes, _ = spoken("aaa aa b.", slips=0)
    aligner = aligner_for("aaa aa b.")
    spoken_a = int(np.argmax(codes != codes[0]))
    assert push_frames(aligner, codes[:spoken_a]) == []
    aligner.finish()
    assert [word.text for word in aligner.take_words()] == ["aaa", "aa", "b."]


def test_pauses_with_and_without_punctuation_belong_to_no_word() -> None:
    first, first_ends = spoken("one two.", slips=0, pause_frames=9)
    second, second_ends = spoken("three four", slips=0)
    silence = np.zeros(5, np.int16)
    aligner = aligner_for("one two. three four")
    words = push_frames(aligner, np.concatenate([silence, first, second, silence]))
    aligner.finish()
    words += aligner.take_words()
    assert words[0].start_ms == 5 * FRAME_MS
    assert words[1].end_ms == first_ends[1] + 5 * FRAME_MS
    begin = (5 + len(first)) * FRAME_MS
    assert words[2].start_ms == begin
    assert words[3].end_ms == begin + second_ends[-1]


def test_unspoken_word_takes_at_most_one_frame() -> None:
    codes, ends = spoken("one two four five", slips=0)
    aligner = aligner_for("one two three four five")
    words = push_frames(aligner, codes)
    aligner.finish()
    words += aligner.take_words()
    assert abs(words[1].end_ms - ends[1]) <= FRAME_MS
    assert words[2].end_ms - words[2].start_ms <= FRAME_MS
    assert words[4].end_ms == ends[-1]


def test_numbers_and_units_are_aligned_in_spoken_form() -> None:
    codes, ends = spoken("by two o'clock they weighed six kilograms", slips=0)
    source = "By 2:00 they weighed 6 kg"
    aligner = aligner_for(source)
    words = push_frames(aligner, codes)
    aligner.finish()
    words += aligner.take_words()
    result = [(word.text, word.end_ms) for word in words]
    assert result == list(zip(source.split(), [ends[0], *ends[2:]], strict=True))


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
def test_spoken_word_depends_on_preceding_word(word: str, before: str, letters: str) -> None:
    assert spoken_word(word, before) == letters


def test_words_without_letters_take_no_time() -> None:
    codes, ends = spoken("one two", slips=0)
    aligner = aligner_for("one — 二 two")
    push_frames(aligner, codes)
    aligner.finish()
    assert aligner.spoken_until(round(ends[-1]) - FRAME_MS) == 8
    assert aligner.spoken_until(round(ends[-1])) == 11


@pytest.mark.parametrize("lazy", [False, True])
def test_spoken_until_is_exact_to_the_word(lazy: bool) -> None:
    """Asked in the middle of every word, as an interrupt does."""
    codes, ends = spoken(SOURCE)
    aligner: WordTiming = LazyWordAligner(aligner_for(SOURCE)) if lazy else aligner_for(SOURCE)
    if lazy:
        aligner.push_text(SOURCE, len(SOURCE))
    starts = [0, *(at + 1 for at, char in enumerate(SOURCE) if char == " ")]
    heard, middles = 0, [(begin + end) / 2 for begin, end in zip([0, *ends], ends, strict=False)]
    for start, middle in zip(starts, middles, strict=True):
        # Playback follows the generated audio by one frame or by half a second.
        for lag_frames in (1, 6):
            until = min(len(codes), round(middle / FRAME_MS) + lag_frames)
            push_frames(aligner, codes[heard:until])
            heard = max(heard, until)
            assert aligner.spoken_until(round(middle)) == start
    aligner.finish()
    assert aligner.spoken_until(10**6) == len(SOURCE)


def test_segments_are_aligned_separately() -> None:
    first, first_ends = spoken("seven stones.")
    second, second_ends = spoken("many people sing.")
    aligner = aligner_for("seven stones. many people sing.")
    words = push_frames(aligner, first)
    aligner.end_segment(13)
    words += push_frames(aligner, second)
    aligner.finish()
    words += aligner.take_words()
    begin = FRAME_MS * len(first)
    wanted = [*first_ends, *(begin + end for end in second_ends)]
    assert max(abs(word.end_ms - end) for word, end in zip(words, wanted, strict=True)) <= FRAME_MS


def test_features_are_two_bytes_per_frame() -> None:
    codes, _ = spoken("one")
    heard = acoustic_scorer().extract_features(no_sound(codes), codes)
    assert heard.nbytes == 2 * len(codes)
