"""Stretched speech: its length, its pitch, and that it does not depend on how it is divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.pipeline.interface import MAX_RATE, MIN_RATE
from voxgate.pipeline.prosody.time_stretch import FADE, SEGMENT, TOLERANCE, TimeStretch

RATE_HZ = 24_000


def voiced(frames: int = 12, pitch_hz: float = 125.0) -> Pcm:
    """A sound like a vowel: harmonics of one pitch, louder and softer ten times a second."""
    seconds = np.arange(frames * FRAME_SAMPLES) / RATE_HZ
    harmonics = sum(np.sin(2 * np.pi * pitch_hz * n * seconds) / n for n in range(1, 9))
    return (0.1 * harmonics * (1 + 0.5 * np.sin(2 * np.pi * 10 * seconds))).astype(np.float32)


def stretched(pcm: Pcm, rate: float, *sizes: int) -> Pcm:
    """The whole result; `sizes`: of the chunks, in turn."""
    stretch, at, parts = TimeStretch(rate), 0, []
    for n in range(len(pcm)):
        if at >= len(pcm):
            break
        size = sizes[n % len(sizes)] if sizes else len(pcm)
        parts.append(stretch.push(pcm[at : at + size]))
        at += size
    return np.concatenate([*parts, stretch.finish()])


def test_own_rate_leaves_speech_as_it_is_without_delay() -> None:
    stretch, pcm = TimeStretch(1), voiced()
    assert stretch.push(pcm) is pcm
    assert not len(stretch.finish())


@pytest.mark.parametrize("rate", [MIN_RATE, 0.8, 0.97, 1.03, 1.25, MAX_RATE])
def test_length_is_exact_and_pitch_stays(rate: float) -> None:
    pcm = voiced(25)
    result = stretched(pcm, rate)
    assert len(result) == round(len(pcm) / rate)
    for sound in (pcm, result):
        spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
        assert np.argmax(spectrum) * RATE_HZ / len(sound) == pytest.approx(125, abs=2)


@pytest.mark.parametrize("rate", [MIN_RATE, 0.8, 1.25, MAX_RATE])
def test_both_ends_are_those_of_the_speech(rate: float) -> None:
    pcm = voiced()
    result = stretched(pcm, rate)
    assert np.array_equal(result[:SEGMENT], pcm[:SEGMENT])
    assert np.array_equal(result[-100:], pcm[-100:])


@pytest.mark.parametrize("rate", [MIN_RATE, 0.8, 1.25, MAX_RATE])
def test_no_join_is_a_step(rate: float) -> None:
    pcm = voiced()
    assert np.abs(np.diff(stretched(pcm, rate))).max() < 1.5 * np.abs(np.diff(pcm)).max()


@pytest.mark.parametrize("rate", [MIN_RATE, 0.8, 1.25, MAX_RATE])
def test_sound_is_where_the_linear_map_puts_it(rate: float) -> None:
    begin, end = 10 * FRAME_SAMPLES, 12 * FRAME_SAMPLES
    pcm = voiced(25)
    pcm[:begin] = pcm[end:] = 0
    found = np.flatnonzero(np.abs(stretched(pcm, rate)) > 0.01)
    allowed = (SEGMENT * abs(rate - 1) / 2 + TOLERANCE + FADE) / rate
    assert abs(found[0] - begin / rate) <= allowed
    assert abs(found[-1] - end / rate) <= allowed


@settings(deadline=None, max_examples=40)
@given(
    rate=st.floats(MIN_RATE, MAX_RATE),
    frames=st.integers(1, 8),
    sizes=st.lists(st.integers(1, 3 * FRAME_SAMPLES), min_size=1, max_size=5),
)
def test_result_does_not_depend_on_how_speech_is_divided(rate: float, frames: int, sizes: list[int]) -> None:
    pcm = voiced(frames)
    whole = stretched(pcm, rate)
    assert len(whole) == round(len(pcm) / rate)
    assert np.array_equal(stretched(pcm, rate, *(max(64, size) for size in sizes)), whole)


@pytest.mark.parametrize("rate", [MIN_RATE, 0.8, 1.25, MAX_RATE])
def test_output_lags_by_at_most_45_ms(rate: float) -> None:
    stretch, made = TimeStretch(rate), 0
    pcm = voiced(20)
    for at in range(0, len(pcm), FRAME_SAMPLES):
        made += len(stretch.push(pcm[at : at + FRAME_SAMPLES]))
        behind = at + FRAME_SAMPLES - made * rate
        assert behind <= 0.045 * RATE_HZ + SEGMENT * rate


def test_memory_is_bounded() -> None:
    stretch = TimeStretch(0.8)
    for _ in range(200):
        stretch.push(voiced(1))
        assert len(stretch._speech) < 3 * FRAME_SAMPLES


@settings(deadline=None, max_examples=200)
@given(rate=st.floats(MIN_RATE, MAX_RATE), samples=st.integers(0, 2 * FRAME_SAMPLES))
def test_short_speech_has_its_length_too(rate: float, samples: int) -> None:
    assert len(stretched(voiced(2)[:samples], rate)) == round(samples / rate)


def test_silence_stays_silence() -> None:
    assert not stretched(np.zeros(10 * FRAME_SAMPLES, np.float32), 0.8).any()
