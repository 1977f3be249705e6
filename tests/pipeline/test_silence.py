"""Leading silence and runs of silence, for any chunking of the audio."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.silence import QUIET_RMS, LeadingSilence, SilenceRun, quiet_frames


def sound(*loud: int) -> np.ndarray:
    """Returns one frame per level: silence for 0, else a constant of that many hundredths."""
    return np.repeat(np.float32(loud) / 100, FRAME_SAMPLES)


def heard(pcm: np.ndarray) -> list[int]:
    return [round(float(value) * 100) for value in pcm[::FRAME_SAMPLES]]


def test_noise_below_threshold_is_quiet() -> None:
    noise = np.random.default_rng(0).standard_normal(FRAME_SAMPLES).astype(np.float32)
    pcm = np.concatenate([0 * noise, 0.9 * QUIET_RMS * noise, 1.1 * QUIET_RMS * noise])
    assert quiet_frames(pcm).tolist() == [True, True, False]


CHUNKS = st.lists(st.integers(1, 4), min_size=1, max_size=30)


@given(silent=st.integers(0, 20), loud=st.integers(0, 5), most=st.integers(0, 12), sizes=CHUNKS)
def test_one_silent_frame_stays_before_sound_that_begins_at_once(
    silent: int, loud: int, most: int, sizes: list[int]
) -> None:
    frames = [0] * silent + list(range(1, loud + 1)) + [0] * 3
    if not loud:
        frames = [0] * silent
    leading, out, at = LeadingSilence(most), [], 0
    while at < len(frames):
        size = sizes[at % len(sizes)]
        part = frames[at : at + size]
        out += heard(leading.cut(sound(*part)))
        at += size
    out += heard(leading.rest())
    expected = min(most, max(0, silent - 1))
    assert leading.frames == expected
    assert out == frames[expected:]


@pytest.mark.parametrize(("begins_ms", "kept"), [(0, 1), (10, 1), (16, 0), (40, 0)])
def test_last_silent_frame_is_kept_where_sound_begins_right_behind_it(begins_ms: int, kept: int) -> None:
    loud = sound(20)
    loud[: begins_ms * 24] = 0
    for split in (False, True):
        leading = LeadingSilence(12)
        pcm = np.concatenate([sound(0, 0, 0), loud])
        parts = [pcm[: 3 * FRAME_SAMPLES], pcm[3 * FRAME_SAMPLES :]] if split else [pcm]
        out = np.concatenate([leading.cut(part) for part in parts])
        assert leading.frames == 3 - kept
        assert out.tolist() == pcm[leading.frames * FRAME_SAMPLES :].tolist()


def test_immediate_sound_is_returned_at_once() -> None:
    leading = LeadingSilence(12)
    assert heard(leading.cut(sound(5, 0))) == [5, 0]
    assert heard(leading.cut(sound(0, 0))) == [0, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_silence_run_is_detected_in_any_chunking(size: int) -> None:
    run = SilenceRun(5)
    frames = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    reached = [run.push(sound(*frames[at : at + size])) for at in range(0, len(frames), size)]
    # The last sound is in the fifth frame, so the run is complete after the tenth.
    assert reached.index(True) == 9 // size
    assert not any(reached[: 9 // size])


def test_silence_is_ignored_without_limit() -> None:
    assert not SilenceRun(0).push(sound(*[0] * 1000))
