"""Times in speech and in audio."""

from __future__ import annotations

from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.interface import WordTime
from voxgate.pipeline.prosody.timeline import Timeline

SECOND = 24_000
TWO = 2 * FRAME_SAMPLES


def two_pauses() -> Timeline:
    """One of 1 s behind 2 frames and 5 characters, one of 0.5 s behind 4 frames and 9 characters."""
    timeline = Timeline(1)
    timeline.begin(5, TWO, SECOND, 1)
    timeline.begin(9, 2 * TWO, SECOND // 2, 1)
    return timeline


def two_rates() -> Timeline:
    """Half rate up to 2 s of speech and 5 characters, a pause of 1 s, then double rate."""
    timeline = Timeline(0.5)
    timeline.begin(5, 2 * SECOND, SECOND, 0.5)
    timeline.begin(5, 2 * SECOND, 0, 2)
    return timeline


def word(start: int, start_ms: int, end_ms: int) -> WordTime:
    return WordTime("w", start, start + 1, start_ms, end_ms)


def test_position_in_audio_becomes_one_in_speech() -> None:
    timeline = two_pauses()
    assert [timeline.speech_samples(at) for at in (0, TWO - 1, TWO)] == [0, TWO - 1, TWO]
    assert timeline.speech_samples(TWO + SECOND // 2) == TWO
    assert timeline.speech_samples(TWO + SECOND) == TWO
    assert timeline.speech_samples(TWO + SECOND + 7) == TWO + 7
    assert timeline.speech_samples(2 * TWO + SECOND + 9) == 2 * TWO
    assert timeline.speech_samples(2 * TWO + 3 * SECOND // 2 + 9) == 2 * TWO + 9


def test_words_behind_a_pause_are_delayed() -> None:
    words = [word(start, ms, ms + 40) for start, ms in ((0, 0), (4, 120), (5, 160), (9, 320))]
    assert [each.start_ms for each in two_pauses().locate(words)] == [0, 120, 1160, 1820]
    assert [each.end_ms for each in two_pauses().locate(words)] == [40, 160, 1200, 1860]
    assert Timeline(1).locate(words) == words


def test_text_decides_on_which_side_of_a_pause_a_word_lies() -> None:
    before, after = two_pauses().locate([word(4, 150, 200), word(5, 150, 200)])
    assert (before.start_ms, before.end_ms) == (150, 160)
    assert (after.start_ms, after.end_ms) == (1160, 1200)


def test_stretched_positions_are_linear() -> None:
    timeline = two_rates()
    seconds = {0: 0, 1: 0.5, 4: 2, 4.5: 2, 5: 2, 5.25: 2.5, 6: 4}
    assert {at: timeline.speech_samples(round(at * SECOND)) / SECOND for at in seconds} == seconds
    assert timeline.speech_ms(1500) == 750


def test_stretched_words_last_as_long_as_their_audio() -> None:
    slow, fast = two_rates().locate([word(0, 500, 900), word(5, 2200, 2600)])
    assert (slow.start_ms, slow.end_ms) == (1000, 1800)
    assert (fast.start_ms, fast.end_ms) == (5100, 5300)
