"""Mouth shapes by codes: those of a phone table, and their times in the audio of an utterance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import voxgate.voices
from fakes.pipeline.synthetic_codes import PHONES, table
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.alignment.phones import load_phone_table
from voxgate.pipeline.alignment.visemes import PHONE_VISEMES, VISEMES, CodeVisemes, VisemeTrack, code_visemes
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.interface import VisemeTime
from voxgate.pipeline.prosody.timeline import Timeline

DEMO = Path(voxgate.voices.__file__).parent / "demo"
OWN: CodeVisemes = np.repeat(np.arange(15, dtype=np.uint8)[:, None], 4, axis=1)
"""Code n is viseme n in all four hops."""
SECOND = 24_000


def codes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int16)


def shapes(found: list[VisemeTime]) -> list[tuple[str, int]]:
    return [(each.viseme, each.start_ms) for each in found]


def test_every_viseme_is_made_by_a_phone() -> None:
    assert set(PHONE_VISEMES.values()) == set(VISEMES)
    assert len(VISEMES) == 15


def test_viseme_of_a_code_is_the_likeliest_over_its_phones() -> None:
    names = ("pau", "t", "p", "b", *["s"] * (PHONES - 4))
    shares = np.zeros((PHONES, 4, PHONES), np.float32)
    shares[..., 1] = 0.4
    shares[..., 2:4] = 0.3  # neither is the likeliest phone, both close the lips
    shares[0, 2] = np.eye(PHONES)[0]
    uniform = table()
    found = code_visemes(replace(uniform, likelihood_ratios=shares / uniform.prior, phones=names))
    assert found is not None
    assert [VISEMES[number] for number in found[0]] == ["PP", "PP", "sil", "PP"]
    assert found.shape == (PHONES, 4)


@pytest.mark.parametrize("names", [(), ("pau", *["click"] * (PHONES - 1))])
def test_phones_without_names_or_visemes_have_no_shapes(names: tuple[str, ...]) -> None:
    assert code_visemes(replace(table(), phones=names)) is None


def test_demo_voice_has_visemes() -> None:
    checkpoint = load_checkpoint(DEMO)
    read = load_phone_table(checkpoint)
    assert read is not None
    found = code_visemes(read)
    assert found is not None
    assert found.shape == (checkpoint.codebook, 4)
    assert set(found.flat) == set(range(15)), "each shape is that of some codes"


def test_a_shape_is_told_once_where_it_begins() -> None:
    hops = np.array([[0, 0, 1, 1], [1, 10, 10, 2]], np.uint8)
    track, timeline = VisemeTrack(hops), Timeline(1)
    track.push(codes(0, 1))
    assert shapes(track.take(timeline)) == [("sil", 0), ("PP", 40), ("aa", 100), ("FF", 140)]
    track.push(codes(0))
    assert shapes(track.take(timeline)) == [("sil", 160), ("PP", 200)]
    assert shapes(track.take(timeline, ended=True)) == [("sil", 240)]
    assert track.take(timeline, ended=True) == []


def test_times_do_not_depend_on_the_division_into_chunks() -> None:
    numbers = np.random.default_rng(1).integers(0, 15, 50)
    whole, parts, timeline = VisemeTrack(OWN), VisemeTrack(OWN), Timeline(1.25)
    whole.push(codes(*numbers))
    found: list[VisemeTime] = []
    for first in range(0, 50, 3):
        parts.push(codes(*numbers[first : first + 3]))
        if first % 2:
            found += parts.take(timeline)
    assert found + parts.take(timeline, ended=True) == whole.take(timeline, ended=True)


@pytest.mark.parametrize("rate", [0.5, 0.8, 2.0])
def test_rate_scales_times(rate: float) -> None:
    track, timeline = VisemeTrack(OWN), Timeline(rate)
    track.push(codes(1, 10, 2))
    assert shapes(track.take(timeline, ended=True)) == [
        (viseme, round(80 * n / rate)) for n, viseme in enumerate(["PP", "aa", "FF", "sil"])
    ]


def test_mouth_closes_in_a_pause_and_goes_on_behind_it() -> None:
    track, timeline = VisemeTrack(OWN), Timeline(1)
    track.push(codes(10))
    timeline.begin(5, FRAME_SAMPLES, SECOND, 1)
    assert shapes(track.take(timeline)) == [("aa", 0), ("sil", 80)], "before any speech follows the pause"
    track.push(codes(10, 1))
    assert shapes(track.take(timeline)) == [("aa", 1080), ("PP", 1160)]


def test_pauses_and_rates_hold_for_the_speech_behind_them() -> None:
    track, timeline = VisemeTrack(OWN), Timeline(1)
    timeline.begin(0, 0, SECOND // 2, 1)
    track.push(codes(10))
    timeline.begin(5, FRAME_SAMPLES, 0, 2)
    track.push(codes(1, 2))
    timeline.begin(9, 3 * FRAME_SAMPLES, SECOND, 1)
    track.push(codes(3))
    expected = [("sil", 0), ("aa", 500), ("PP", 580), ("FF", 620), ("sil", 660), ("TH", 1660), ("sil", 1740)]
    assert shapes(track.take(timeline, ended=True)) == expected
