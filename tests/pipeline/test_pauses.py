"""Pauses between the frames of the talker, and times in speech and in audio."""

from __future__ import annotations

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.interface import WordTime
from voxgate.pipeline.pauses import CHUNK_SAMPLES, InsertedPauses
from voxgate.pipeline.text.markup.writer import Pause

SECOND = 24_000


def taken(pauses: InsertedPauses, frame: int | None, speech: int) -> int:
    """Takes all silence that is due; returns its samples."""
    total = 0
    while count := len(pauses.take(frame, speech)):
        assert count <= CHUNK_SAMPLES
        total += count
    return total


def two_pauses() -> InsertedPauses:
    """One of 1 s behind 2 frames and 5 characters, one of 0.5 s behind 4 frames and 9 characters."""
    pauses = InsertedPauses()
    pauses.place([Pause(1000, 5)], 2)
    pauses.place([Pause(500, 9)], 4)
    assert taken(pauses, 2, 2 * FRAME_SAMPLES) == SECOND
    assert taken(pauses, 4, 4 * FRAME_SAMPLES) == SECOND // 2
    return pauses


def test_pause_is_due_behind_its_frame_exact_to_the_sample() -> None:
    pauses = InsertedPauses()
    pauses.place([Pause(333, 5)], 2)
    assert taken(pauses, 1, FRAME_SAMPLES) == 0
    assert pauses
    assert taken(pauses, 2, 2 * FRAME_SAMPLES) == 333 * 24
    assert not pauses


def test_all_pauses_are_due_at_the_end() -> None:
    pauses = InsertedPauses()
    pauses.place([Pause(100, 5), Pause(200, 5)], 9)
    assert taken(pauses, None, 0) == 300 * 24


def test_speech_is_divided_at_the_next_pause() -> None:
    pauses = InsertedPauses()
    pcm = np.zeros(3 * FRAME_SAMPLES, np.float32)
    assert [len(part) for part in pauses.split(pcm, 0)] == [3 * FRAME_SAMPLES, 0]
    pauses.place([Pause(100, 5)], 12)
    assert [len(part) for part in pauses.split(pcm, 10)] == [2 * FRAME_SAMPLES, FRAME_SAMPLES]
    assert [len(part) for part in pauses.split(pcm, 0)] == [3 * FRAME_SAMPLES, 0]


def test_position_in_audio_becomes_one_in_speech() -> None:
    pauses, two = two_pauses(), 2 * FRAME_SAMPLES
    assert [pauses.speech_samples(at) for at in (0, two - 1, two)] == [0, two - 1, two]
    assert pauses.speech_samples(two + SECOND // 2) == two
    assert pauses.speech_samples(two + SECOND) == two
    assert pauses.speech_samples(two + SECOND + 7) == two + 7
    assert pauses.speech_samples(2 * two + SECOND + 9) == 2 * two
    assert pauses.speech_samples(2 * two + 3 * SECOND // 2 + 9) == 2 * two + 9


def test_words_behind_a_pause_are_delayed() -> None:
    words = [WordTime("w", start, start + 1, 0, 160) for start in (0, 4, 5, 9)]
    assert [word.start_ms for word in two_pauses().delay(words)] == [0, 0, 1000, 1500]
    assert [word.end_ms for word in InsertedPauses().delay(words)] == [160] * 4
