"""Followed when asked: the same answers as from a clock that followed all along, and nothing done before."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.pipeline.synthetic_speech import SOURCE, spoken
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.pipeline.alignment.coarse import CoarseFeatureExtractor
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.word_timing import WordAligner, WordTiming

SPEECH, ENDS = spoken(SOURCE)
CUT = SOURCE.index(" And")
CUT_FRAME = round(ENDS[SOURCE[:CUT].count(" ")] / FRAME_MS)


def told(clock: WordTiming) -> None:
    """Two segments, text ahead of the sound as it comes from a model, a frame at a time."""
    frames = [SPEECH[at : at + FRAME_SAMPLES] for at in range(0, len(SPEECH), FRAME_SAMPLES)]
    for n, frame in enumerate(frames):
        at = min(len(SOURCE), 6 * (n + 1))
        clock.text(SOURCE[:at], at)
        clock.audio(frame)
        if n == CUT_FRAME:
            clock.segment_end(CUT)
    clock.finish()


@pytest.mark.parametrize("played_ms", [0, 300, 1000, 2000, 3000, 4000, 60_000])
def test_the_answer_is_that_of_a_clock_that_followed_all_along(played_ms: int) -> None:
    live, deferred = WordAligner(), LazyWordAligner(WordAligner())
    told(live)
    told(deferred)
    starts = [0, *(at + 1 for at, char in enumerate(SOURCE) if char == " "), len(SOURCE)]
    answers = [starts.index(clock.spoken_until(played_ms)) for clock in (live, deferred)]
    # Settled after four frames instead of after each, a word may fall to the other side of its border.
    assert abs(answers[0] - answers[1]) <= 1
    assert deferred.spoken_until(played_ms) == starts[answers[1]], "asked twice"


def test_it_can_be_asked_in_the_middle_and_goes_on() -> None:
    clock = LazyWordAligner(WordAligner())
    clock.text(SOURCE, len(SOURCE))
    clock.audio(SPEECH[: 24_000 * 3])
    early = clock.spoken_until(3000)
    clock.audio(SPEECH[24_000 * 3 :])
    clock.finish()
    assert 0 < early < len(SOURCE)
    assert clock.spoken_until(3000) <= clock.spoken_until(6000)
    assert clock.spoken_until(60_000) == len(SOURCE)


def test_nothing_is_followed_until_someone_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    original = WordAligner.hear

    def counted(clock: WordAligner, costs: np.ndarray) -> None:
        followed.append(len(costs))
        original(clock, costs)

    monkeypatch.setattr(WordAligner, "hear", counted)
    clock = LazyWordAligner(WordAligner(1.1))
    told(clock)
    assert followed == []
    assert clock.take_words() == []
    assert clock.pace == 1.1
    clock.spoken_until(1000)
    assert sum(followed) == len(CoarseFeatureExtractor().hear(SPEECH))
    clock.spoken_until(2000)
    assert sum(followed) == len(CoarseFeatureExtractor().hear(SPEECH)), "and never twice"
