from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.alignment.coarse import CoarseFeatureExtractor, PhoneClass, class_spans

V, M, H, T, ANY = PhoneClass.VOWEL, PhoneClass.SONORANT, PhoneClass.HISS, PhoneClass.STOP, PhoneClass.ANY


@pytest.mark.parametrize(
    ("word", "sounds"),
    [
        ("stone,", [H, T, V, M]),
        ("nation", [M, V, H, V, M]),
        ("the", [T, V]),
        ("night", [M, V, T]),
        ("know", [M, V, M]),
        ("yes", [M, V, H]),
        ("queen", [T, M, V, M]),
        ("letter", [M, V, T, V, M]),
        ("Zürich", [H, V, M, V, H]),
        ("don't", [T, V, M, T]),
        ("42", [ANY, ANY]),
        ("$5", [ANY, ANY]),
        ("BBC", [ANY, ANY, ANY]),
        ("NATO", [M, V, T, V]),
        ("мир", [ANY, ANY, ANY]),
        ("...", []),
    ],
)
def test_spelling_tells_the_kinds_of_sound(word: str, sounds: list[PhoneClass]) -> None:
    assert [part.sound for part in class_spans(word)] == sounds


def test_any_spelling_has_sounds() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz'"
    rng = np.random.default_rng(2)
    for _ in range(2000):
        word = "".join(rng.choice(list(letters), size=rng.integers(1, 12)))
        assert all(part.ms > 0 for part in class_spans(word))


def kinds(pcm: np.ndarray) -> list[PhoneClass]:
    costs = CoarseFeatureExtractor().hear(pcm.astype(np.float32))
    return [PhoneClass(int(kind)) for kind in costs[:, : PhoneClass.ANY].argmin(axis=1)]


def test_moments_are_told_apart_by_loudness_and_brightness() -> None:
    t = np.arange(2400) / 24_000
    noise = np.diff(np.random.default_rng(1).standard_normal(2401))
    assert set(kinds(np.zeros(2400))) == {PhoneClass.PAUSE}
    assert set(kinds(0.3 * np.sin(2 * np.pi * 400 * t))) <= {PhoneClass.VOWEL, PhoneClass.SONORANT}
    assert set(kinds(0.03 * noise)) == {PhoneClass.HISS}


def test_moments_do_not_depend_on_how_the_audio_came() -> None:
    pcm = (0.2 * np.random.default_rng(1).standard_normal(5000)).astype(np.float32)
    whole = CoarseFeatureExtractor().hear(pcm)
    listener = CoarseFeatureExtractor()
    np.testing.assert_allclose(np.concatenate([listener.hear(pcm[at : at + 333]) for at in range(0, 5000, 333)]), whole)
    assert len(whole) == 5000 // 480
