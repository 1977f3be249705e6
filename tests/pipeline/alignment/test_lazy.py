"""Alignment on demand: the same answers as immediate alignment, and no work before the first question."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.pipeline.synthetic_speech import SOURCE, spoken
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.pipeline.alignment.coarse import CoarseFeatureExtractor
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.word_timing import WordAligner, WordTiming

SPEECH, ENDS_MS = spoken(SOURCE)
SEGMENT_END = SOURCE.index(" And")
SEGMENT_END_FRAME = round(ENDS_MS[SOURCE[:SEGMENT_END].count(" ")] / FRAME_MS)


def feed(timing: WordTiming) -> None:
    """Two segments, frame by frame, with the text ahead of the speech as it comes from a language model."""
    frames = [SPEECH[at : at + FRAME_SAMPLES] for at in range(0, len(SPEECH), FRAME_SAMPLES)]
    for n, frame in enumerate(frames):
        at = min(len(SOURCE), 6 * (n + 1))
        timing.push_text(SOURCE[:at], at)
        timing.push_audio(frame)
        if n == SEGMENT_END_FRAME:
            timing.end_segment(SEGMENT_END)
    timing.finish()


@pytest.mark.parametrize("played_ms", [0, 300, 1000, 2000, 3000, 4000, 60_000])
def test_answer_equals_that_of_immediate_alignment(played_ms: int) -> None:
    immediate, lazy = WordAligner(), LazyWordAligner(WordAligner())
    feed(immediate)
    feed(lazy)
    starts = [0, *(at + 1 for at, char in enumerate(SOURCE) if char == " "), len(SOURCE)]
    answers = [starts.index(timing.spoken_until(played_ms)) for timing in (immediate, lazy)]
    # Committed after four frames instead of after each, a word may fall to the other side of its border.
    assert abs(answers[0] - answers[1]) <= 1
    assert lazy.spoken_until(played_ms) == starts[answers[1]], "the same answer again"


def test_alignment_in_parts_gives_the_same_answer() -> None:
    whole, parts = LazyWordAligner(WordAligner()), LazyWordAligner(WordAligner())
    feed(whole)
    feed(parts)
    count = 0
    while parts.catch_up():
        count += 1
    assert count >= len(SPEECH) // FRAME_SAMPLES // 4 - 1
    for played_ms in (0, 1000, 3000, 60_000):
        assert parts.spoken_until(played_ms) == whole.spoken_until(played_ms)


def test_alignment_continues_after_question_in_mid_speech() -> None:
    timing = LazyWordAligner(WordAligner())
    timing.push_text(SOURCE, len(SOURCE))
    timing.push_audio(SPEECH[: 24_000 * 3])
    early = timing.spoken_until(3000)
    timing.push_audio(SPEECH[24_000 * 3 :])
    timing.finish()
    assert 0 < early < len(SOURCE)
    assert timing.spoken_until(3000) <= timing.spoken_until(6000)
    assert timing.spoken_until(60_000) == len(SOURCE)


def test_each_hop_is_aligned_once_and_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    aligned_hops: list[int] = []
    push_features = WordAligner.push_features

    def counted(aligner: WordAligner, features: np.ndarray) -> None:
        aligned_hops.append(len(features))
        push_features(aligner, features)

    monkeypatch.setattr(WordAligner, "push_features", counted)
    timing = LazyWordAligner(WordAligner(1.1))
    feed(timing)
    assert aligned_hops == []
    assert timing.take_words() == []
    assert timing.pace == 1.1
    all_hops = len(CoarseFeatureExtractor().push(SPEECH))
    timing.spoken_until(1000)
    assert sum(aligned_hops) == all_hops
    timing.spoken_until(2000)
    assert sum(aligned_hops) == all_hops
