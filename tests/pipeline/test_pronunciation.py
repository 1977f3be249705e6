from __future__ import annotations

import numpy as np
import pytest
from fakes.made_up_codes import LETTERS, pronunciation


def said(text: str) -> str:
    """Each place's likeliest phone, by the letter it is for."""
    return "".join(LETTERS[phone - 1] for phone in pronunciation().of(text).argmax(axis=1))


@pytest.mark.parametrize(
    ("text", "phones"),
    [
        ("dog", "dog"),
        ("Dog.", "dog"),
        ("fox", "foks"),
        ("don't", "dont"),
        ("well-known", "wellknown"),
        ("two words", "twowords"),
        ("42", ""),
        ("…", ""),
        ("", ""),
    ],
)
def test_letters_tell_phones(text: str, phones: str) -> None:
    assert said(text) == phones


def test_every_place_is_some_phone_and_none_is_silence() -> None:
    places = pronunciation().of("the quick brown fox")
    np.testing.assert_allclose(places.sum(axis=1), 1, rtol=1e-6)
    assert not places[:, 0].any()


def test_a_word_of_silent_letters_still_has_a_place() -> None:
    assert len(pronunciation().of("''")) > 0
