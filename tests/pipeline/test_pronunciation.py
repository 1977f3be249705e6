from __future__ import annotations

import numpy as np
import pytest
from fakes.made_up_codes import LETTERS, pronunciation


def said(text: str) -> str:
    """Each place's likeliest phone, by the letter it is for."""
    return "".join(LETTERS[phone - 1] for phone in pronunciation().of(text).phones.argmax(axis=1))


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
    places = pronunciation().of("the quick brown fox").phones
    np.testing.assert_allclose(places.sum(axis=1), 1, rtol=1e-6)
    assert not places[:, 0].any()


def test_a_letter_that_is_hardly_ever_silent_keeps_its_place_and_says_so() -> None:
    """The network of the made-up codes is sure of everything but this "h": it is silent every other time."""
    unsure = pronunciation()
    h = LETTERS.index("h")
    unsure.outputs[h, 0] = unsure.outputs[h].max()
    heard = unsure.of("hat")
    assert len(heard.phones) == 3
    np.testing.assert_allclose(heard.silent, [0.5, 0, 0], atol=0.01)
