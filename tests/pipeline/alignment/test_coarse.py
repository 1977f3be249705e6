"""Coarse phone classes: the rules of spelling, and the acoustic measures."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.alignment.coarse import HOP_SAMPLES, CoarseFeatureExtractor, PhoneClass, class_costs, class_spans

V, M, F, T, ANY = PhoneClass.VOWEL, PhoneClass.SONORANT, PhoneClass.FRICATIVE, PhoneClass.STOP, PhoneClass.ANY


@pytest.mark.parametrize(
    ("word", "classes"),
    [
        ("stone,", [F, T, V, M]),
        ("nation", [M, V, F, V, M]),
        ("the", [T, V]),
        ("night", [M, V, T]),
        ("know", [M, V, M]),
        ("yes", [M, V, F]),
        ("queen", [T, M, V, M]),
        ("letter", [M, V, T, V, M]),
        ("Zürich", [F, V, M, V, F]),
        ("don't", [T, V, M, T]),
        ("42", [ANY, ANY]),
        ("$5", [ANY, ANY]),
        ("BBC", [ANY, ANY, ANY]),
        ("NATO", [M, V, T, V]),
        ("мир", [ANY, ANY, ANY]),
        ("...", []),
    ],
)
def test_spelling_gives_phone_classes(word: str, classes: list[PhoneClass]) -> None:
    assert [span.phone_class for span in class_spans(word)] == classes


def test_every_spelling_gives_positive_durations() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz'"
    rng = np.random.default_rng(2)
    for _ in range(2000):
        word = "".join(rng.choice(list(letters), size=rng.integers(1, 12)))
        assert all(span.ms > 0 for span in class_spans(word))


def likeliest_classes(pcm: np.ndarray) -> set[PhoneClass]:
    costs = class_costs(CoarseFeatureExtractor().push(pcm.astype(np.float32)))
    return {PhoneClass(int(kind)) for kind in costs[:, : PhoneClass.ANY].argmin(axis=1)}


def test_level_and_brightness_distinguish_silence_tone_and_noise() -> None:
    t = np.arange(2400) / 24_000
    noise = np.diff(np.random.default_rng(1).standard_normal(2401))
    assert likeliest_classes(np.zeros(2400)) == {PhoneClass.PAUSE}
    assert likeliest_classes(0.3 * np.sin(2 * np.pi * 400 * t)) <= {PhoneClass.VOWEL, PhoneClass.SONORANT}
    assert likeliest_classes(0.03 * noise) == {PhoneClass.FRICATIVE}


def test_measures_do_not_depend_on_how_audio_is_split() -> None:
    pcm = (0.2 * np.random.default_rng(1).standard_normal(5000)).astype(np.float32)
    whole = CoarseFeatureExtractor().push(pcm)
    extractor = CoarseFeatureExtractor()
    parts = np.concatenate([extractor.push(pcm[at : at + 333]) for at in range(0, 5000, 333)])
    np.testing.assert_allclose(parts, whole)
    assert len(whole) == 5000 // HOP_SAMPLES
